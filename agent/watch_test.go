package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/observe"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
)

// watcher returns as much of an agent as watches a runtime, with workers that note their passes.
func watcher(t *testing.T, rt cri.Runtime, pass func(worker.Work)) *Agent {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	a := &Agent{
		deps: Deps{Runtime: rt}, log: log, observer: observe.New(rt), relistAsked: make(chan struct{}, 1), takingIn: make(chan struct{}, 1),
		cfg: &configs.Config{},
	}
	a.cfg.Berth.RelistPeriod.Duration = time.Hour
	a.workers = worker.New(t.Context(), worker.Config{}, worker.Deps{
		Pass: func(_ context.Context, w worker.Work) worker.Result { pass(w); return worker.Result{} }, Logger: log,
	})
	t.Cleanup(a.workers.Close)
	return a
}

// Events about what nobody knows must not hold up those that follow, nor have everything listed once for each.
func TestUnknownEventsAreListedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		rt.Inject(fake.Fault{Method: "ListPodSandbox", Delay: time.Second})
		a := watcher(t, rt, func(worker.Work) {})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.relists(ctx) }()
		begin := time.Now()
		for range 2 {
			events := make(chan cri.Event, 500)
			for i := range cap(events) {
				events <- cri.Event{Type: cri.ContainerStarted, ID: fmt.Sprint("unknown", i)}
			}
			close(events)
			a.drain(ctx, events)
			synctest.Wait()
		}
		if held := time.Since(begin); held != 0 {
			t.Errorf("the draining was held up for %s", held)
		}
		time.Sleep(time.Minute)
		if n := len(rt.Calls("ListPodSandbox")); n != 2 {
			t.Errorf("everything was listed %d times, want once and once more", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A manifest that is only renamed leaves its pod as it is; the record must name the new file.
func TestRenamedManifestWakesItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		passes := 0
		a := watcher(t, fake.New(fake.Config{}), func(worker.Work) { passes++ })
		verdicts := func(file string) []source.Verdict { return []source.Verdict{{File: file, UID: "u", Accepted: true}} }
		a.workers.Set(testPod("u"))
		for _, step := range []struct {
			file string
			want int
		}{{"a.yaml", 1}, {"a.yaml", 1}, {"b.yaml", 2}, {"b.yaml", 2}} {
			a.remember(verdicts(step.file))
			synctest.Wait()
			if passes != step.want {
				t.Errorf("%s: %d passes, want %d", step.file, passes, step.want)
			}
		}
		a.workers.Close()
	})
}

func TestForeignPodsAreForgotten(t *testing.T) {
	a := watcher(t, fake.New(fake.Config{}), func(worker.Work) {})
	a.foreign.add("gone")
	if !a.relist(t.Context()) {
		t.Error("the runtime did not answer")
	}
	if a.foreign.has("gone") {
		t.Error("a foreign pod that is gone is remembered")
	}
}

// Two listings that find the same pod without a worker make one worker for it: the answer that one of them waits for may be of a time when the other's worker had not yet come.
func TestPodsAreTakenInOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		pod := testPod("u")
		sandbox, err := rt.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u", Namespace: pod.Namespace, Name: pod.Name}, Labels: cri.SandboxLabels(pod),
			Annotations: map[string]string{steps.AnnotationRootDir: "/root"},
		}, "")
		if err != nil {
			t.Fatal(err)
		}
		a := watcher(t, rt, func(worker.Work) {})
		a.cfg.RootDir = "/root"
		a.desired = newDesired()
		a.desired.last.AllReady = true
		var gone atomic.Int32
		a.workers = worker.New(t.Context(), worker.Config{}, worker.Deps{
			Pass: func(ctx context.Context, w worker.Work) worker.Result {
				if err := errors.Join(rt.StopPodSandbox(ctx, sandbox), rt.RemovePodSandbox(ctx, sandbox)); err != nil && ctx.Err() == nil && !errdefs.IsNotFound(err) {
					t.Error(err)
				}
				return worker.Result{Done: w.Phase != worker.Running}
			},
			Gone: func(types.UID, *v1.Pod) { gone.Add(1) }, Logger: a.log,
		})
		t.Cleanup(a.workers.Close)
		go func() { // the main loop's part
			for {
				select {
				case <-t.Context().Done():
					return
				case <-a.desired.strays:
					a.disown()
				}
			}
		}()
		// The first is asked for the pod and answered a second later, the second soon after it, and answered when all is over.
		asks := func(c fake.Call) bool {
			r, ok := c.Request.(*runtimeapi.ListPodSandboxRequest)
			return ok && r.GetFilter() != nil
		}
		rt.Inject(fake.Fault{Method: "ListPodSandbox", Match: asks, Nth: 1, After: true, Delay: time.Second})
		rt.Inject(fake.Fault{Method: "ListPodSandbox", Match: asks, Nth: 2, After: true, Delay: time.Minute})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { a.relist(t.Context()) })
			synctest.Wait()
		}
		both.Wait()
		time.Sleep(time.Hour)
		if n := gone.Load(); n != 1 {
			t.Errorf("%d workers came and went", n)
		}
	})
}
