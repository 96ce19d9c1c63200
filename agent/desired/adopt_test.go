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
