package agent

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// shelf is a source of manifests that a test changes.
type shelf struct {
	mu   sync.Mutex
	out  func(source.Snapshot)
	text string
}

func (*shelf) Name() string { return pods.SourceFile }

func (s *shelf) Run(ctx context.Context, out func(source.Snapshot)) error {
	s.mu.Lock()
	s.out = out
	s.mu.Unlock()
	s.put(s.text)
	<-ctx.Done()
	return nil
}

// put replaces the manifest; an empty text removes it.
func (s *shelf) put(text string) {
	snapshot := source.Snapshot{Source: pods.SourceFile, Ready: true}
	for _, i := range (source.Decoder{NodeName: "node"}).Decode("pod.yaml", []byte(text)) {
		if i.Pod != nil {
			snapshot.Pods = append(snapshot.Pods, i.Pod)
		}
	}
	s.mu.Lock()
	s.text = text
	out := s.out
	s.mu.Unlock()
	if out != nil {
		out(snapshot)
	}
}

func (j *joined) mirror() *v1.Pod { return j.api.Pod("default", "web-node") }

func TestStaticPodsAreShown(t *testing.T) {
	s := &shelf{text: string(staticWeb)}
	joinFrom(t, s, func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		m := j.mirror()
		if m == nil {
			t.Fatal("there is no mirror")
		}
		if m.Annotations[v1.MirrorPodAnnotationKey] == "" || m.Annotations[pods.AnnotationSource] != pods.SourceFile ||
			m.OwnerReferences[0].Kind != "Node" || !readyIn(m) {
			t.Errorf("%+v", m)
		}
		j.sent()
		time.Sleep(time.Hour)
		if n, what := j.sent(); n != 0 {
			t.Errorf("%d requests for an idle static pod: %s", n, what)
		}

		j.api.Delete(apifake.Pods, "default", "web-node", ptr.To[int64](0))
		time.Sleep(5 * time.Second)
		if again := j.mirror(); again == nil || again.UID == m.UID || !readyIn(again) ||
			j.calls("StartContainer") != 1 {
			t.Errorf("after its deletion: %+v, %d starts", again, j.calls("StartContainer"))
		}

		s.put(strings.Replace(string(staticWeb), "image: app", "image: other", 1))
		time.Sleep(40 * time.Second)
		if now := j.mirror(); now == nil || now.Spec.Containers[0].Image != "other" || !readyIn(now) {
			t.Errorf("another version: %+v", now)
		}
		s.put("")
		time.Sleep(40 * time.Second)
		if left := j.mirror(); left != nil {
			t.Errorf("without its static pod: %+v", left)
		}
	})
}

// The mirror of a pod that was removed while the agent did not run is removed once the manifests
// have been read.
func TestMirrorOfWhatIsGoneGoes(t *testing.T) {
	s := &shelf{text: string(staticWeb)}
	joinFrom(t, s, func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		j.end()
		s.text = ""
		j.start()
		time.Sleep(40 * time.Second)
		if left := j.mirror(); left != nil {
			t.Errorf("%+v", left)
		}
	})
}

func TestMirrorsStandAnAPIServerThatFails(t *testing.T) {
	s := &shelf{text: string(staticWeb)}
	joinFrom(t, s, func(t *testing.T, j *joined) {
		var n atomic.Int64
		j.api.Fail(func(r *http.Request) *apifake.Fault {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/pods") && n.Add(1)%4 != 0 {
				return &apifake.Fault{Code: http.StatusForbidden}
			}
			return nil
		})
		j.api.Stop()
		time.Sleep(5 * time.Minute)
		j.api.Start()
		time.Sleep(5 * time.Minute)
		if m := j.mirror(); m == nil || !readyIn(m) {
			t.Errorf("%+v", m)
		}
	})
}

// A static pod that is resized in place keeps its UID, and its mirror shows the new version with
// its status.
func TestMirrorOfAResizedPod(t *testing.T) {
	const sized = `{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: app, ` +
		`resources: {requests: {cpu: 100m}}}]}}`
	s := &shelf{text: sized}
	joinFrom(t, s, func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		s.put(strings.Replace(sized, "100m", "200m", 1))
		time.Sleep(10 * time.Second)
		m := j.mirror()
		if m == nil || m.Spec.Containers[0].Resources.Requests.Cpu().String() != "200m" || !readyIn(m) ||
			j.calls("StartContainer") != 1 {
			t.Errorf("%+v, %d starts", m, j.calls("StartContainer"))
		}
		if err := j.rt.Exit("app", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if m := j.mirror(); m.Status.ContainerStatuses[0].RestartCount != 1 {
			t.Errorf("its status is not reported: %+v", m.Status)
		}
	})
}

// The API server's answer about a mirror counts, whatever the agent expected: a mirror that still
// exists there is removed all the same.
func TestMirrorThatWasTakenForGone(t *testing.T) {
	s := &shelf{text: string(staticWeb)}
	joinFrom(t, s, func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		var refused atomic.Bool
		j.api.Fail(func(r *http.Request) *apifake.Fault {
			if r.Method == http.MethodDelete && !refused.Swap(true) {
				return &apifake.Fault{Code: http.StatusConflict}
			}
			return nil
		})
		s.put(strings.Replace(string(staticWeb), "image: app", "image: other", 1))
		time.Sleep(50 * time.Second)
		if now := j.mirror(); !refused.Load() || now == nil || now.Spec.Containers[0].Image != "other" ||
			!readyIn(now) {
			t.Errorf("another version: %+v", now)
		}
	})
}

// A pod that claims to be the mirror of another pod of the node takes nothing over: not the
// status, neither while it is there nor after it was deleted.
func TestForgedMirrorShowsNothing(t *testing.T) {
	join(t, staticWeb, func(t *testing.T, j *joined) {
		job := j.bind("a", func(p *v1.Pod) {
			p.Spec.RestartPolicy, p.Spec.Containers[0].Name = v1.RestartPolicyNever, "work"
		})
		time.Sleep(5 * time.Second)
		for name, uid := range map[string]string{
			"of-job":    string(job.UID),
			"of-static": j.mirror().Annotations[v1.MirrorPodAnnotationKey],
		} {
			j.bind(name, func(p *v1.Pod) { p.Annotations = map[string]string{v1.MirrorPodAnnotationKey: uid} })
		}
		j.sent()
		time.Sleep(5 * time.Second)
		if _, what := j.sent(); strings.Contains(what, "PATCH") {
			t.Errorf("the forged mirrors got a status: %s", what)
		}
		if err := j.rt.Exit("work", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if got := j.api.Pod("ns", "a").Status.Phase; got != v1.PodSucceeded {
			t.Errorf("the API server has phase %s of the pod that ended", got)
		}
		if m := j.mirror(); !readyIn(m) {
			t.Errorf("the mirror of the static pod has %+v", m.Status)
		}
	})
}
