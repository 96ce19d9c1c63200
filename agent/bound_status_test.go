package agent

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/cri/fake"
)

// sent returns the requests since the last look that are about pods, without watches.
func (j *joined) sent() (n int, what string) {
	for _, r := range j.api.Requests() {
		if strings.Contains(r.Path, "/pods") && !strings.Contains(r.Query, "watch=true") {
			n++
			what += r.Method + " " + r.Path + " " + r.Body + "\n"
		}
	}
	return n, what
}

func readyIn(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}

func TestStatusReachesTheAPI(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(time.Second)
		j.sent()
		j.bind("a")
		time.Sleep(5 * time.Second)
		pod := j.api.Pod("ns", "a")
		if s := pod.Status; s.Phase != v1.PodRunning || !readyIn(pod) || s.PodIP == "" || s.HostIP == "" ||
			s.ObservedGeneration != pod.Generation ||
			len(s.ContainerStatuses) != 1 || s.ContainerStatuses[0].State.Running == nil || s.StartTime == nil {
			t.Errorf("status %+v", s)
		}
		if n, what := j.sent(); n == 0 || n > 3 {
			t.Errorf("%d requests for a pod's start:\n%s", n, what)
		}
		time.Sleep(time.Hour)
		if n, what := j.sent(); n != 0 {
			t.Errorf("%d requests for an idle pod:\n%s", n, what)
		}
		j.api.Delete(apifake.Pods, "ns", "a", nil)
		time.Sleep(31 * time.Second)
		if pod := j.api.Pod("ns", "a"); pod != nil {
			t.Errorf("it is deleted and still there: %+v", pod.Status)
		}
		j.wantRuns("deleted", "")
		if n, what := j.sent(); n == 0 || n > 4 {
			t.Errorf("%d requests for a pod's end:\n%s", n, what)
		}
	})
}

// Nobody may take a pod's name, volumes or ports before they are free here.
func TestDeletionIsNotConfirmedWhileAContainerRuns(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.rt.Script("app", fake.Behavior{Term: fake.Term{Ignore: true}})
		j.bind("a")
		time.Sleep(5 * time.Second)
		j.api.Delete(apifake.Pods, "ns", "a", ptr.To[int64](60))
		time.Sleep(58 * time.Second)
		if pod := j.api.Pod("ns", "a"); pod == nil || pod.Status.Phase != v1.PodRunning {
			t.Errorf("within its grace: %+v", pod)
		}
		time.Sleep(5 * time.Second)
		if pod := j.api.Pod("ns", "a"); pod != nil {
			t.Errorf("after its grace: %+v", pod.Status)
		}
	})
}

func TestPodsThatAreOverAreConfirmed(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.end()
		j.bind("deleted")
		j.bind("ended", func(p *v1.Pod) { p.Status.Phase, p.Status.Reason = v1.PodFailed, "Evicted" })
		j.api.Delete(apifake.Pods, "ns", "deleted", nil)
		j.start()
		time.Sleep(10 * time.Second)
		if pod := j.api.Pod("ns", "deleted"); pod != nil {
			t.Errorf("a pod that was never here is not confirmed: %+v", pod)
		}
		if s := j.api.Pod("ns", "ended").Status; s.Phase != v1.PodFailed || s.Reason != "Evicted" {
			t.Errorf("a pod that had ended is %s %s", s.Phase, s.Reason)
		}
	})
}

// Statuses that an API server missed while it was away are sent once it is back, and nothing starts
// anew.
func TestStatusAfterTheAPIServerWasAway(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
		j.bind("b")
		time.Sleep(5 * time.Second)
		j.api.Stop()
		time.Sleep(time.Minute)
		if err := j.rt.Exit("app", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		j.api.Start()
		time.Sleep(10 * time.Second)
		a, b := j.api.Pod("ns", "a").Status, j.api.Pod("ns", "b").Status
		if (a.Phase != v1.PodSucceeded) == (b.ContainerStatuses[0].RestartCount != 1) {
			t.Errorf("after its return: %s with %d restarts, %s with %d", a.Phase, a.ContainerStatuses[0].RestartCount,
				b.Phase, b.ContainerStatuses[0].RestartCount)
		}
	})
}

// A final phase stays even if the API server lost it.
func TestFinalPhaseIsReportedAgain(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a", func(p *v1.Pod) { p.Spec.RestartPolicy = v1.RestartPolicyNever })
		time.Sleep(5 * time.Second)
		if err := j.rt.Exit("app", 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		j.change("a", func(p *v1.Pod) { p.Status.Phase = v1.PodRunning })
		time.Sleep(5 * time.Second)
		if s := j.api.Pod("ns", "a").Status; s.Phase != v1.PodFailed || j.calls("StartContainer") != 1 {
			t.Errorf("phase %s after %d starts", s.Phase, j.calls("StartContainer"))
		}
	})
}

func TestReadinessGates(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a", func(p *v1.Pod) {
			p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/gate"}}
		})
		time.Sleep(5 * time.Second)
		if pod := j.api.Pod("ns", "a"); readyIn(pod) || pod.Status.Phase != v1.PodRunning {
			t.Errorf("ready without its gate: %+v", pod.Status)
		}
		j.change("a", func(p *v1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions,
				v1.PodCondition{Type: "example.com/gate", Status: v1.ConditionTrue})
		})
		time.Sleep(time.Second)
		if pod := j.api.Pod("ns", "a"); !readyIn(pod) {
			t.Errorf("not ready with its gate: %+v", pod.Status)
		}
		j.end()
		j.start()
		time.Sleep(5 * time.Second)
		if pod := j.api.Pod("ns", "a"); !readyIn(pod) {
			t.Errorf("not ready after a restart: %+v", pod.Status.Conditions)
		}
	})
}

func TestStatusStandsAnAPIServerThatFails(t *testing.T) {
	for name, fault := range map[string]apifake.Fault{
		"errors": {Code: http.StatusInternalServerError}, "too many": {Code: http.StatusTooManyRequests, RetryAfter: 1},
		"late": {Delay: 20 * time.Second}, "drops": {Drop: true, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			join(t, "", func(t *testing.T, j *joined) {
				var n atomic.Int64
				j.api.Fail(func(*http.Request) *apifake.Fault {
					if n.Add(1)%3 == 0 {
						return nil
					}
					return &fault
				})
				j.bind("a")
				time.Sleep(5 * time.Minute)
				if pod := j.api.Pod("ns", "a"); !readyIn(pod) {
					t.Errorf("status %+v", pod.Status)
				}
				j.api.Delete(apifake.Pods, "ns", "a", nil)
				time.Sleep(5 * time.Minute)
				if pod := j.api.Pod("ns", "a"); pod != nil {
					t.Errorf("not confirmed: %+v", pod.Status)
				}
			})
		})
	}
}

// leave ends the agent for good.
func (j *joined) leave() {
	j.end()
	j.end = func() {}
}

// slow makes every request of a method take this long.
func (j *joined) slow(method string, d time.Duration) {
	j.api.Fail(func(r *http.Request) *apifake.Fault {
		if r.Method != method || strings.Contains(r.URL.Path, "/leases/") {
			return nil
		}
		return &apifake.Fault{Delay: d}
	})
}

// drain drains the node and waits until the drain is done.
func (j *joined) drain(hold bool) {
	j.t.Helper()
	if err := j.Drain(api.DrainRequest{Hold: hold}); err != nil {
		j.t.Fatal(err)
	}
	for range 1000 {
		if j.Drained().State == api.Drained {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	j.t.Fatalf("it is not drained: %+v", j.Drained())
}

// The last status is sent although the agent ends at once.
func TestLastStatusIsReportedAtTheEnd(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a")
		time.Sleep(5 * time.Second)
		j.slow(http.MethodPatch, time.Second)
		if err := j.rt.Exit("app", 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		want := j.Pods()[0].Status
		j.leave()
		if got := j.api.Pod("ns", "a").Status; got.ContainerStatuses[0].RestartCount != 1 ||
			readyIn(j.api.Pod("ns", "a")) != readyIn(&v1.Pod{Status: want}) {
			t.Errorf("the agent ended with %+v, the API server has %+v", want, got)
		}
	})
}

// The last status of a pod is sent before the pod is forgotten.
func TestLastStatusIsReportedByADrain(t *testing.T) {
	for _, hold := range []bool{false, true} {
		join(t, "", func(t *testing.T, j *joined) {
			j.bind("a")
			time.Sleep(5 * time.Second)
			j.slow(http.MethodPatch, time.Second)
			j.drain(hold)
			j.leave()
			if s := j.api.Pod("ns", "a").Status; s.Phase != v1.PodFailed || s.Reason != "Drained" ||
				s.ContainerStatuses[0].State.Terminated == nil {
				t.Errorf("%s %s %+v", s.Phase, s.Reason, s.ContainerStatuses)
			}
		})
	}
}

// An agent that is started only to drain the node stops the pods that it finds, before the API
// server has listed its pods.
func TestLastStatusIsReportedByADrainBeforeTheFirstListing(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a")
		time.Sleep(5 * time.Second)
		j.end()
		j.slow(http.MethodGet, 200*time.Millisecond)
		j.start()
		j.drain(false)
		if s := j.api.Pod("ns", "a").Status; s.Phase != v1.PodFailed || s.Reason != "Drained" {
			t.Errorf("%s %s", s.Phase, s.Reason)
		}
	})
}

func TestEndWithAnAPIServerThatHangs(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		j.bind("a")
		time.Sleep(5 * time.Second)
		j.api.Fail(func(*http.Request) *apifake.Fault { return &apifake.Fault{Delay: time.Hour} })
		if err := j.rt.Exit("app", 3); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		began := time.Now()
		j.leave()
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("it kept the agent for %s", d)
		}
	})
}
