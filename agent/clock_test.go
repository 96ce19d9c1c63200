package agent

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/cri/fake"
)

var timestamp = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// putForward moves all times that the agent has written, here and in the API server. That has the
// effect of a clock put back, which a test cannot do. A negative d has the effect of a clock put
// forward.
func (j *joined) putForward(d time.Duration) {
	j.t.Helper()
	files, _ := filepath.Glob(filepath.Join(j.records(), "*.json"))
	if len(files) == 0 {
		j.t.Fatal("there is no record")
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			j.t.Fatal(err)
		}
		text = timestamp.ReplaceAllFunc(text, func(old []byte) []byte {
			at, err := time.Parse(time.RFC3339Nano, string(old))
			if err != nil {
				j.t.Fatal(err)
			}
			return []byte(at.Add(d).Format(time.RFC3339Nano))
		})
		if err := os.WriteFile(f, text, 0o600); err != nil {
			j.t.Fatal(err)
		}
	}
	lease := j.api.Get(apifake.Leases, v1.NamespaceNodeLease, "node").(*coordinationv1.Lease)
	lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(d)}
	j.api.Put(apifake.Leases, lease)
	for _, name := range []string{"runs", "crashes", "bounded"} {
		pod := j.api.Pod("ns", name)
		pod.Status.StartTime = &metav1.Time{Time: pod.Status.StartTime.Add(d)}
		for i := range pod.Status.Conditions {
			c := &pod.Status.Conditions[i]
			c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(d))
		}
		j.api.Put(apifake.Pods, pod)
	}
}

// The clock is put by an hour, in either direction, while the agent does not run. What runs goes
// on. A crash back-off and a grace take no longer. The time of the Lease grows: to the present
// time, if it was not later.
func TestClockPutByAnHour(t *testing.T) {
	for name, moved := range map[string]time.Duration{"back": time.Hour, "forward": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			join(t, staticWeb, func(t *testing.T, j *joined) {
				j.rt.Script("crash", fake.Behavior{Exit: &fake.Exit{After: 5 * time.Second, Code: 1}})
				j.rt.Script("stubborn", fake.Behavior{Term: fake.Term{Ignore: true}})
				j.bind("runs", probed)
				j.bind("crashes", func(p *v1.Pod) { p.Spec.Containers[0].Name = "crash" })
				j.bind("bounded", func(p *v1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](3 * 3600) })
				j.bind("leaves", func(p *v1.Pod) { p.Spec.Containers[0].Name = "stubborn" })
				time.Sleep(6 * time.Minute)
				j.api.Delete(apifake.Pods, "ns", "leaves", ptr.To[int64](60))
				time.Sleep(10 * time.Second)
				count := func() map[string]int {
					out := map[string]int{}
					for _, p := range j.Pods() {
						for _, c := range p.Status.ContainerStatuses {
							out[p.Name] = int(c.RestartCount)
						}
					}
					return out
				}
				starts := count()
				j.end()
				j.putForward(moved)
				j.start()
				time.Sleep(70 * time.Second)
				if p := j.api.Pod("ns", "leaves"); p != nil {
					t.Errorf("the pod that was deleted is still there: %+v", p.Status)
				}
				renewed := func() time.Time {
					return j.api.Get(apifake.Leases, v1.NamespaceNodeLease,
						"node").(*coordinationv1.Lease).Spec.RenewTime.Time
				}
				last := renewed()
				if age := time.Since(last); age > 11*time.Second {
					t.Errorf("the lease was renewed %s ago", age)
				}
				time.Sleep(11 * time.Second)
				if now := renewed(); !now.After(last) || now.Sub(last) > time.Second && now.After(time.Now()) {
					t.Errorf("the lease was renewed at %s, and before that at %s; it is %s", now, last, time.Now())
				}
				time.Sleep(6 * time.Minute) // longer than any back-off
				synctest.Wait()
				now := count()
				for _, name := range []string{"web-node", "runs", "bounded"} {
					if now[name] != starts[name] {
						t.Errorf("%s restarted %d times", name, now[name]-starts[name])
					}
				}
				// six times if the back-off begins anew: the container seems to have run for an
				// hour
				if n := now["crashes"] - starts["crashes"]; n < 1 || n > 6 {
					t.Errorf("the pod that crashes restarted %d times in seven minutes", n)
				}
				if p := j.api.Pod("ns", "runs"); readiness(p) != v1.ConditionTrue {
					t.Errorf("it is not ready: %+v", p.Status)
				}
			})
		})
	}
}
