package desired

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/pod/observe"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
)

// handler does what workers do, in a test.
type handler struct {
	sync func(context.Context, worker.Work) worker.Result
	gone func()
}

// Sync does what the test wants.
func (h handler) Sync(ctx context.Context, w worker.Work) worker.Result { return h.sync(ctx, w) }

// Gone does what the test wants.
func (h handler) Gone(types.UID, *v1.Pod) {
	if h.gone != nil {
		h.gone()
	}
}

// node is as much of an agent as takes in pods and reconciles them.
type node struct {
	workers    *worker.Pool
	observer   *observe.Observer
	state      *State
	adopter    *Adopter
	reconciler *Reconciler
}

func newNode(t *testing.T, rt cri.Runtime, h handler) *node {
	t.Helper()
	log, stale := slog.New(slog.DiscardHandler), notify.New()
	n := &node{workers: worker.New(t.Context(), worker.Config{}, log), observer: observe.New(rt), state: &State{}}
	n.workers.Start(h)
	t.Cleanup(n.workers.Close)
	dir := t.TempDir()
	n.adopter = NewAdopter(AdopterDeps{
		RootDir: "/root", PodDir: func(uid types.UID) string { return filepath.Join(dir, string(uid)) },
		Workers: n.workers, Observer: n.observer, State: n.state, Stale: stale, Logger: log,
		Orphaned: func() {},
	})
	n.reconciler = New(Config{}, Deps{
		Stale: stale, News: notify.New(), State: n.state, Workers: n.workers, Gate: drain.NewGate(dir), Logger: log,
	})
	return n
}

// list has everything listed once, as the PLEG does.
func (n *node) list(ctx context.Context) {
	listed, err := n.observer.Relist(ctx)
	if err != nil {
		return
	}
	n.adopter.Listed(listed)
	for uid, l := range listed {
		if n.workers.Has(uid) {
			n.workers.Wake(uid)
		} else {
			n.adopter.TakeIn(ctx, uid, l)
		}
	}
}

func podOf(uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "ns", Name: "pod-" + string(uid)}}
}

// A manifest that is only renamed leaves its pod as it is; the record must name the new file.
func TestRenamedManifestWakesItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs := 0
		n := newNode(t, fake.New(fake.Config{}), handler{sync: func(context.Context, worker.Work) worker.Result {
			syncs++
			return worker.Result{}
		}})
		results := func(file string) []source.Result {
			return []source.Result{{File: file, UID: "u", Accepted: true}}
		}
		n.workers.Set(podOf("u"))
		for _, step := range []struct {
			file string
			want int
		}{{"a.yaml", 1}, {"a.yaml", 1}, {"b.yaml", 2}, {"b.yaml", 2}} {
			n.reconciler.rememberFiles(results(step.file))
			synctest.Wait()
			if syncs != step.want {
				t.Errorf("%s: %d syncs, want %d", step.file, syncs, step.want)
			}
		}
		n.workers.Close()
	})
}

// A pod whose manifest was deleted and is there again starts anew, also if the agent saw nothing in
// between. It goes on if the arrival of its manifest is not known, as after a restart of the agent.
func TestReturnedManifestStartsItsPodAnew(t *testing.T) {
	pod := podOf("u")
	for _, test := range []struct {
		name     string
		next     source.Result
		replaced bool
	}{
		{name: "arrived again", next: source.Result{File: "a.yaml", Arrival: 2}, replaced: true},
		{name: "the same arrival", next: source.Result{File: "a.yaml", Arrival: 1}},
		{name: "renamed", next: source.Result{File: "b.yaml", Arrival: 2}},
		{name: "unknown arrival", next: source.Result{File: "a.yaml"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := 0
				n := newNode(t, fake.New(fake.Config{}), handler{
					sync: func(_ context.Context, w worker.Work) worker.Result { return worker.Result{Done: w.Unwanted} },
					gone: func() { gone++ },
				})
				n.reconciler.deps.Refused, n.reconciler.deps.Changed = func(int) {}, func() {}
				n.reconciler.deps.Admitted = func(types.UID) bool { return true }
				apply := func(v source.Result) {
					v.UID, v.Accepted = "u", true
					n.reconciler.apply(source.Update{
						Pods: map[types.UID]*v1.Pod{"u": pod}, Results: []source.Result{v},
						Ready: map[string]bool{pods.SourceFile: true}, AllReady: true,
					})
					synctest.Wait()
				}
				apply(source.Result{File: "a.yaml", Arrival: 1})
				apply(test.next)
				if (gone == 1) != test.replaced || !n.workers.Has("u") {
					t.Errorf("the pod was removed %d times, and has a worker: %t", gone, n.workers.Has("u"))
				}
				n.workers.Close()
			})
		})
	}
}

// A drained node keeps a pod that has ended, but not one whose manifest was deleted and is there
// again: such a pod starts anew after the drain.
func TestReturnedManifestIsNotKept(t *testing.T) {
	n := newNode(t, fake.New(fake.Config{}), handler{})
	wanted := map[types.UID]*v1.Pod{"u": podOf("u")}
	known := map[types.UID]worker.Entry{"u": {Pod: wanted["u"], Phase: worker.Terminated}}
	for _, returned := range []bool{false, true} {
		kept := n.reconciler.keptOf(wanted, known, map[types.UID]bool{"u": returned})
		if _, ok := kept["u"]; ok == returned {
			t.Errorf("returned: %t, kept: %t", returned, ok)
		}
	}
}

func TestUnmanagedPodsAreForgotten(t *testing.T) {
	n := newNode(t, fake.New(fake.Config{}), handler{})
	n.adopter.unmanaged["gone"] = true
	n.list(t.Context())
	if n.adopter.unmanaged["gone"] {
		t.Error("an unmanaged pod that is gone is remembered")
	}
}

// The sandbox of another agent names its root directory. Whoever makes a pod of a kubelet at the
// API server can have it name one, too, but cannot hide it from the agent that takes over.
func TestWhoseSandboxesAre(t *testing.T) {
	for name, tc := range map[string]struct {
		root, source string
		dir, want    bool
	}{
		"made by this agent":                     {"/root", pods.SourceFile, false, true},
		"of a kubelet here":                      {"", pods.SourceAPI, true, true},
		"of a kubelet elsewhere":                 {"", pods.SourceAPI, false, false},
		"of a kubelet here, to be hidden":        {"/x", pods.SourceAPI, true, true},
		"of another agent":                       {"/other", pods.SourceAPI, false, false},
		"of another agent, static":               {"/other", pods.SourceFile, false, false},
		"of another agent, with the same UID":    {"/other", pods.SourceFile, true, false},
		"of another agent, of an unknown source": {"/other", "", true, false},
	} {
		n := newNode(t, fake.New(fake.Config{}), handler{})
		if tc.dir {
			if err := os.MkdirAll(n.adopter.deps.PodDir("u"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		annotations := map[string]string{pods.AnnotationSource: tc.source}
		if tc.root != "" {
			annotations[steps.AnnotationRootDir] = tc.root
		}
		if got := n.adopter.ours("u", annotations); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Two listings that find the same pod without a worker make one worker for it: the answer that one
// of them waits for may be of a time when the other's worker had not yet come.
func TestPodsAreTakenInOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		pod := podOf("u")
		sandbox, err := rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
			Metadata:    &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: pod.Namespace, Name: pod.Name},
			Labels:      cri.SandboxLabels(pod),
			Annotations: map[string]string{steps.AnnotationRootDir: "/root"},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		var gone atomic.Int32
		n := newNode(t, rt, handler{
			sync: func(ctx context.Context, w worker.Work) worker.Result {
				err := errors.Join(rt.StopPodSandbox(ctx, sandbox), rt.RemovePodSandbox(ctx, sandbox))
				if err != nil && ctx.Err() == nil && !errdefs.IsNotFound(err) {
					t.Error(err)
				}
				return worker.Result{Done: w.Phase != worker.Running}
			},
			gone: func() { gone.Add(1) },
		})
		n.state.set(source.Update{AllReady: true})
		go func() { _ = n.reconciler.Run(t.Context()) }()
		// The first is asked for the pod and answered a second later, the second soon after it, and
		// answered when all is over.
		asks := func(c fake.Call) bool {
			r, ok := c.Request.(*runtimeapi.ListPodSandboxRequest)
			return ok && r.GetFilter() != nil
		}
		rt.Inject(fake.Fault{Method: "ListPodSandbox", Match: asks, Nth: 1, After: true, Delay: time.Second})
		rt.Inject(fake.Fault{Method: "ListPodSandbox", Match: asks, Nth: 2, After: true, Delay: time.Minute})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { n.list(t.Context()) })
			synctest.Wait()
		}
		both.Wait()
		time.Sleep(time.Hour)
		if n := gone.Load(); n != 1 {
			t.Errorf("%d workers came and went", n)
		}
	})
}

// Anybody with the runtime's socket can label a sandbox. A pod whose labels are paths gets no
// worker: its removal would delete directories that are not the agent's.
func TestPathsInLabelsAreNotTakenIn(t *testing.T) {
	for name, id := range map[string]cri.PodID{
		"uid":       {UID: "..", Namespace: "ns", Name: "pod"},
		"namespace": {UID: "project", Namespace: "../../home/my", Name: "pod"},
		"name":      {UID: "project", Namespace: "ns", Name: "x/../../../home/my"},
		"no name":   {UID: "project", Namespace: "ns"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := fake.New(fake.Config{})
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: id.UID, Namespace: id.Namespace, Name: id.Name}}
			if _, err := rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
				Metadata:    &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: "ns", Name: "pod"},
				Labels:      cri.SandboxLabels(pod),
				Annotations: map[string]string{steps.AnnotationRootDir: "/root"},
			}, ""); err != nil {
				t.Fatal(err)
			}
			n := newNode(t, rt, handler{sync: func(context.Context, worker.Work) worker.Result { return worker.Result{} }})
			n.list(t.Context())
			if n.workers.Has(id.UID) {
				t.Errorf("pod %s has a worker", id)
			}
		})
	}
}
