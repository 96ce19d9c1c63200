package stopped

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// pod returns a pod of a source; annotations are pairs of a name and a value.
func pod(uid, name, source string, annotations ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID(uid), Namespace: "ns", Name: name,
		Annotations: map[string]string{pods.AnnotationSource: source},
	}}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	p.Spec.Containers = []v1.Container{{Name: "a"}}
	return p
}

// workers notes what it is asked for.
type workers struct {
	list  map[types.UID]worker.Entry
	asked []string
}

func (w *workers) List() map[types.UID]worker.Entry { return w.list }

func (w *workers) Stop(uid types.UID, stop worker.Stop) {
	w.asked = append(w.asked, fmt.Sprintf("stop %s %s %v", uid, stop.Cause, ptr.Deref(stop.Grace, -1)))
}

func (w *workers) Remove(uid types.UID) {
	w.asked = append(w.asked, "remove "+string(uid))
	delete(w.list, uid)
}

// node is an operator of one pod, over restarts of the agent.
type node struct {
	root    string
	workers *workers
	changed int
	// wanted is what the sources want, once they were read.
	wanted map[types.UID]*v1.Pod
	unread bool
	*Operator
	marks *Marks
}

func newNode(t *testing.T, entries ...worker.Entry) *node {
	t.Helper()
	n := &node{root: t.TempDir(), workers: &workers{list: map[types.UID]worker.Entry{}}}
	for _, e := range entries {
		n.workers.list[e.Pod.UID] = e
	}
	if err := os.Mkdir(filepath.Join(n.root, "berth"), 0o700); err != nil {
		t.Fatal(err)
	}
	n.restart()
	return n
}

func (n *node) restart() {
	log := slog.New(slog.DiscardHandler)
	n.marks = Open(n.root, log)
	n.Operator = NewOperator(Deps{
		Marks: n.marks, Pods: n.workers, Changed: func() { n.changed++ }, Logger: log,
		Wanted: func() source.Update { return source.Update{Pods: n.wanted, AllReady: !n.unread} },
		Containers: func(_ context.Context, uid types.UID, names []string, _ *int64) ([]string, error) {
			return append(names, string(uid)), nil
		},
	})
}

func (n *node) wantAsked(t *testing.T, want ...string) {
	t.Helper()
	if fmt.Sprint(n.workers.asked) != fmt.Sprint(want) {
		t.Errorf("the workers were asked for %q, want %q", n.workers.asked, want)
	}
	n.workers.asked = nil
}

func TestStopAndStart(t *testing.T) {
	web := pod("u", "web", pods.SourceFile)
	n := newNode(t, worker.Entry{Pod: web})
	if n.marks.Of(web) != nil {
		t.Error("stopped before anybody has")
	}
	if err := n.Stop(web, nil); err != nil {
		t.Fatal(err)
	}
	n.wantAsked(t, "stop u Operator -1")
	if err := n.Stop(web, ptr.To[int64](0)); err != nil {
		t.Fatal(err)
	}
	n.wantAsked(t, "stop u Operator 0")
	first := *n.marks.Of(web)
	n.restart()
	again := n.marks.Of(pod("other", "web", pods.SourceFile))
	if again == nil || *again != first || again.Reason != pods.ReasonStopped || again.Grace != nil ||
		!strings.Contains(again.Message, `"berth start ns/web" starts it.`) {
		t.Errorf("after a restart %+v, want %+v", again, first)
	}
	if n.marks.Of(pod("x", "other", pods.SourceFile)) != nil || n.marks.Of(pod("u", "web", pods.SourceAPI)) != nil {
		t.Error("another pod is stopped, too")
	}
	n.workers.list["u"] = worker.Entry{Pod: web, Phase: worker.Terminated, Stop: again}
	if was, err := n.Start(t.Context(), web); !was || err != nil || n.changed != 1 {
		t.Errorf("started: %v, %v, %d changes", was, err, n.changed)
	}
	n.wantAsked(t, "remove u")
	n.restart()
	n.workers.list["u"] = worker.Entry{Pod: web}
	if was, err := n.Start(t.Context(), web); was || err != nil || n.changed != 1 || n.marks.Of(web) != nil {
		t.Errorf("started again: %v, %v, %d changes", was, err, n.changed)
	}
	n.wantAsked(t)
}

func TestRefused(t *testing.T) {
	ended := pod("e", "ended", pods.SourceFile)
	ended.Status.Phase = v1.PodSucceeded
	ofAPI := pod("a", "a", pods.SourceAPI)
	n := newNode(t, worker.Entry{Pod: ended, Phase: worker.Terminated}, worker.Entry{Pod: ofAPI})
	for _, c := range []struct {
		pod  *v1.Pod
		want string
	}{
		{ofAPI, "refused: pod ns/a belongs to the API server, which would make it run again: delete it there " +
			"(kubectl delete pod -n ns a), or scale its owner down (kubectl scale)"},
		{ended, "refused: pod ns/ended has ended by itself (Succeeded), and runs anew only if \"berth start ns/ended\" " +
			"or a changed manifest starts it"},
		{pod("gone", "gone", pods.SourceFile), "refused: pod ns/gone is not wanted on this node any more"},
	} {
		if err := n.Stop(c.pod, nil); !errors.Is(err, ErrRefused) || err.Error() != c.want {
			t.Errorf("%s: %v", c.pod.Name, err)
		}
	}
	n.wantAsked(t)
}

// A pod that has ended runs anew, and no other pod with it. The API server makes another pod.
func TestStartOfAnEndedPod(t *testing.T) {
	ended := pod("e", "job", pods.SourceFile)
	ended.Status.Phase = v1.PodFailed
	n := newNode(t, worker.Entry{Pod: ended, Phase: worker.Terminated},
		worker.Entry{Pod: pod("o", "other", pods.SourceFile), Phase: worker.Terminated})
	if was, err := n.Start(t.Context(), ended); !was || err != nil || n.changed != 1 {
		t.Errorf("started: %v, %v, %d changes", was, err, n.changed)
	}
	n.wantAsked(t, "remove e")
	n.workers.list["e"] = worker.Entry{Pod: ended, Phase: worker.Terminated, Unwanted: true, Recorded: true}
	if was, err := n.Start(t.Context(), ended); was || err != nil || n.changed != 1 {
		t.Errorf("started while it is removed: %v, %v, %d changes", was, err, n.changed)
	}
	ended.Annotations[pods.AnnotationSource] = pods.SourceAPI
	if _, err := n.Start(t.Context(), ended); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(),
		"pod ns/job has ended (Failed) and belongs to the API server") {
		t.Errorf("one of the API server: %v", err)
	}
	n.wantAsked(t)
}

// A stop outlives its manifest, but not for ever. Sources that were not read do not count.
func TestStopOfAPodThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web, other := pod("u", "web", pods.SourceFile), pod("o", "other", pods.SourceFile)
		n := newNode(t, worker.Entry{Pod: web}, worker.Entry{Pod: other})
		for _, p := range []*v1.Pod{web, other} {
			if err := n.Stop(p, nil); err != nil {
				t.Fatal(err)
			}
		}
		n.wanted = map[types.UID]*v1.Pod{"o": other}
		live := func(days int) {
			t.Helper()
			n.restart()
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(days)*24*time.Hour+time.Minute)
			defer cancel()
			if err := n.Run(ctx); err != nil {
				t.Error(err)
			}
			n.restart()
			if n.marks.Of(other) == nil {
				t.Error("a pod with a manifest is not stopped any more")
			}
		}
		n.unread = true
		if live(40); n.marks.Of(web) == nil {
			t.Error("not stopped, although its source may want it")
		}
		n.unread = false
		if live(29); n.marks.Of(web) == nil {
			t.Error("not stopped after 29 days")
		}
		n.wanted["u"] = web // back for an hour
		live(1)
		delete(n.wanted, "u")
		if live(29); n.marks.Of(web) == nil {
			t.Error("not stopped after 29 days more")
		}
		if live(1); n.marks.Of(web) != nil {
			t.Error("stopped after 30 days")
		}
	})
}

// A pod that is being removed ends sooner, and is not kept from running when it comes again.
func TestStopOfARemovedPod(t *testing.T) {
	web := pod("u", "web", pods.SourceFile)
	n := newNode(t, worker.Entry{Pod: web, Phase: worker.Terminating, Unwanted: true, Stop: &worker.Stop{}})
	if err := n.Stop(web, ptr.To[int64](0)); err != nil {
		t.Fatal(err)
	}
	n.wantAsked(t, "stop u  0")
	if n.marks.Of(web) != nil {
		t.Error("it stays stopped")
	}
}

func TestStartWhenChanged(t *testing.T) {
	const hash = pods.AnnotationHash
	before := pod("u", "web", pods.SourceFile, hash, "1", pods.AnnotationStart, "true")
	n := newNode(t, worker.Entry{Pod: before})
	if err := n.Stop(before, nil); err != nil {
		t.Fatal(err)
	}
	n.restart()
	if n.marks.Of(before) == nil || n.marks.Of(pod("v", "web", pods.SourceFile, hash, "2")) == nil {
		t.Error("it starts although its manifest did not ask for that, or did not change")
	}
	if n.marks.Of(pod("v", "web", pods.SourceFile, hash, "2", pods.AnnotationStart, "true")) != nil {
		t.Error("it does not start")
	}
	n.restart()
	if n.marks.Of(before) != nil {
		t.Error("the mark is still there")
	}
}

// The hash of a pod whose manifest sets the UID is that UID.
func TestStartWhenChangedUnderItsUID(t *testing.T) {
	const hash, content = pods.AnnotationHash, pods.AnnotationContent
	before := pod("u", "web", pods.SourceFile, hash, "u", content, "1", pods.AnnotationStart, "true")
	n := newNode(t, worker.Entry{Pod: before})
	if err := n.Stop(before, nil); err != nil {
		t.Fatal(err)
	}
	n.restart()
	if n.marks.Of(before) == nil {
		t.Error("it starts although its manifest did not change")
	}
	if n.marks.Of(pod("u", "web", pods.SourceFile, hash, "u", content, "2", pods.AnnotationStart, "true")) != nil {
		t.Error("it does not start")
	}
}

func TestDiskFaults(t *testing.T) {
	web := pod("u", "web", pods.SourceFile)
	n := newNode(t, worker.Entry{Pod: web})
	if err := os.Remove(filepath.Join(n.root, "berth")); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(web, nil); !errors.Is(err, fs.ErrNotExist) || n.marks.Of(web) != nil {
		t.Errorf("stopped without a record: %v", err)
	}
	n.wantAsked(t)
	if err := os.Mkdir(filepath.Join(n.root, "berth"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.root, "berth", "stopped.json"), []byte("{torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	if n.marks.Of(web) != nil {
		t.Error("it is stopped by a file that cannot be read")
	}
	if err := n.Stop(web, nil); err != nil {
		t.Fatal(err)
	}
	if n.restart(); n.marks.Of(web) == nil {
		t.Error("it is not stopped")
	}
}

func TestRestart(t *testing.T) {
	n := newNode(t)
	names, err := n.Restart(t.Context(), pod("u", "web", pods.SourceAPI), []string{"a"}, nil)
	if fmt.Sprint(names, err) != "[a u] <nil>" {
		t.Errorf("%q, %v", names, err)
	}
}
