package probes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

func TestReadinessFollowsItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set("ready", 1)
		r.sync(podOf(v1.Container{ReadinessProbe: execProbe("ready", 10, 2)}), "id1")
		r.want(Result{ContainerID: "id1", Started: true})
		r.wantChanges(0)

		r.pass(5 * time.Second)
		r.set("ready", 0)
		r.pass(6 * time.Second)
		r.wantTimes("ready", 0, 1, 11)
		r.want(Result{ContainerID: "id1", Started: true, Ready: true})
		r.wantChanges(1)

		r.set("ready", 1)
		r.pass(10 * time.Second)
		r.want(Result{ContainerID: "id1", Started: true, Ready: true})
		r.pass(10 * time.Second)
		r.want(Result{ContainerID: "id1", Started: true})
		r.wantChanges(2)
		failed := "c|Warning|Unhealthy|Readiness probe failed: out of ready"
		r.wantEvents(failed, failed, failed, failed)
	})
}

func TestOthersWaitForStartup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set("start", 1)
		r.sync(podOf(v1.Container{
			StartupProbe:   execProbe("start", 3, 30),
			ReadinessProbe: execProbe("ready", 10, 3),
			LivenessProbe:  execProbe("live", 10, 3),
		}), "id1")
		r.pass(7 * time.Second)
		r.want(Result{ContainerID: "id1"})
		r.wantTimes("ready")
		r.wantTimes("live")
		r.set("start", 0)
		r.pass(15 * time.Second)
		r.wantTimes("start", 0, 3, 6, 9)
		r.wantTimes("ready", 9, 19)
		r.wantTimes("live", 9, 19)
		r.want(Result{ContainerID: "id1", Started: true, Ready: true})
		r.wantChanges(2)
	})
}

func TestLivenessFailureHoldsUntilNewContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := podOf(v1.Container{LivenessProbe: execProbe("live", 5, 2)})
		r.set("live", 1)
		r.sync(pod, "id1")
		r.pass(time.Minute)
		r.wantTimes("live", 0, 5)
		failed := Result{
			ContainerID: "id1",
			Started:     true,
			Ready:       true,
			Failed:      Liveness,
			Message:     "Liveness probe failed: out of live",
		}
		r.want(failed)
		r.wantChanges(1)
		r.sync(pod, "id1")
		r.pass(time.Minute)
		r.wantTimes("live", 0, 5)
		r.want(failed)

		r.set("live", 0)
		r.sync(pod, "id2")
		r.want(Result{ContainerID: "id2", Started: true, Ready: true})
		r.pass(6 * time.Second)
		r.wantTimes("live", 0, 5, 120, 125)
	})
}

func TestStartupFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set("start", 3)
		r.sync(podOf(v1.Container{StartupProbe: execProbe("start", 1, 3), LivenessProbe: execProbe("live", 1, 1)}),
			"id1")
		r.pass(time.Minute)
		r.wantTimes("start", 0, 1, 2)
		r.wantTimes("live")
		r.want(Result{ContainerID: "id1", Failed: Startup, Message: "Startup probe failed: out of start"})
	})
}

func TestSyncTwiceKeepsTheRhythm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := podOf(v1.Container{LivenessProbe: execProbe("live", 10, 3)})
		r.sync(pod, "id1")
		for range 50 {
			r.pass(500 * time.Millisecond)
			r.sync(pod, "id1")
		}
		r.wantTimes("live", 0, 10, 20)
		r.wantChanges(0)
	})
}

func TestInitialDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		live := execProbe("live", 10, 3)
		live.InitialDelaySeconds = 7
		r.sync(podOf(v1.Container{LivenessProbe: live}), "id1")
		r.pass(20 * time.Second)
		r.wantTimes("live", 7, 17)
	})
}

func TestProberErrorsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.setFunc("live", func(context.Context) (int, []byte, error) { return 0, nil, errors.New("no runtime") })
		r.sync(podOf(v1.Container{LivenessProbe: execProbe("live", 10, 1)}), "id1")
		r.pass(11 * time.Second)
		r.wantTimes("live", 0, 0, 0, 10, 10, 10)
		r.want(Result{ContainerID: "id1", Started: true, Ready: true})
		event := "c|Warning|Unhealthy|Liveness probe errored and resulted in unknown state: run probe command in " +
			"container c: no runtime"
		r.wantEvents(event, event)
		if got := r.observed[0].Result; got != ResultUnknown {
			t.Errorf("observed %s", got)
		}
	})
}

func TestRetryHelps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		n := 0
		r.setFunc("live", func(context.Context) (int, []byte, error) {
			if n++; n < 3 {
				return 0, nil, errors.New("shaky")
			}
			return 0, nil, nil
		})
		r.sync(podOf(v1.Container{LivenessProbe: execProbe("live", 10, 1)}), "id1")
		r.wantEvents()
		r.wantTimes("live", 0, 0, 0)
	})
}

func TestExecThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.setFunc("live", func(ctx context.Context) (int, []byte, error) {
			<-ctx.Done() // A runtime that does not enforce the timeout.
			return 0, nil, fmt.Errorf("exec: %w", ctx.Err())
		})
		r.sync(podOf(v1.Container{LivenessProbe: execProbe("live", 2, 2)}), "id1")
		r.pass(10 * time.Second)
		r.wantTimes("live", 0, 3)
		r.want(Result{
			ContainerID: "id1",
			Started:     true,
			Ready:       true,
			Failed:      Liveness,
			Message:     `Liveness probe failed: command timed out: "live" timed out after 1s`,
		})
		r.wantEvents(
			`c|Warning|Unhealthy|Liveness probe failed: command timed out: "live" timed out after 1s`,
			`c|Warning|ProbeWarning|Liveness probe command took 3s, longer than its period of 2s: raise periodSeconds`,
			`c|Warning|Unhealthy|Liveness probe failed: command timed out: "live" timed out after 1s`,
		)
	})
}

// An exec without an answer says something about the container only if the runtime answers other
// calls.
func TestExecThatNobodyAnswers(t *testing.T) {
	hang := func(ctx context.Context) (int, []byte, error) { <-ctx.Done(); return 0, nil, ctx.Err() }
	for name, tc := range map[string]struct {
		exec   func(context.Context) (int, []byte, error)
		alive  func(context.Context) error
		failed Kind
		times  []float64
	}{
		"healthy runtime": {hang, func(context.Context) error { return nil }, Liveness, []float64{0}},
		"frozen runtime": {
			hang, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "", []float64{0, 5, 10},
		},
		"runtime that is away": {
			hang, func(context.Context) error { return errdefs.ErrUnavailable }, "", []float64{0, 3, 6, 10, 13},
		},
		"runtime that says so": {
			func(context.Context) (int, []byte, error) {
				return 0, nil, fmt.Errorf("timeout 1s exceeded: %w", context.DeadlineExceeded)
			},
			func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, Liveness,
			[]float64{0},
		},
		"connection that broke": {
			func(context.Context) (int, []byte, error) { return 0, nil, errdefs.ErrUnavailable }, nil, "",
			[]float64{0, 0, 0, 10, 10, 10},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.alive = tc.alive
				r.setFunc("live", tc.exec)
				r.sync(podOf(v1.Container{LivenessProbe: execProbe("live", 10, 1)}), "id1")
				r.pass(14 * time.Second)
				r.wantTimes("live", tc.times...)
				if got := r.Results(uid)["c"]; got.Failed != tc.failed || !got.Ready {
					t.Errorf("result %+v", got)
				}
			})
		})
	}
}

func TestStopDropsWhatIsUnderWay(t *testing.T) {
	for name, gone := range map[string]func(r *rig, pod *v1.Pod){
		"Stop":              func(r *rig, _ *v1.Pod) { r.Stop(uid) },
		"container gone":    func(r *rig, pod *v1.Pod) { r.Sync(pod, "", nil) },
		"container another": func(r *rig, pod *v1.Pod) { r.set("live", 0); r.sync(pod, "id2") },
		"Run ends":          func(r *rig, _ *v1.Pod) { r.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				pod := podOf(v1.Container{LivenessProbe: execProbe("live", 2, 1)})
				ended := false
				r.setFunc("live", func(ctx context.Context) (int, []byte, error) {
					<-ctx.Done()
					ended = true
					return 1, []byte("too late"), nil
				})
				r.sync(pod, "id1")
				gone(r, pod)
				synctest.Wait()
				if !ended {
					t.Error("the exec under way was not cancelled")
				}
				r.wantEvents()
				r.wantChanges(0)
				for _, o := range r.observed {
					if o.Result != ResultSuccessful {
						t.Errorf("observed %+v", o)
					}
				}
			})
		})
	}
}

func TestTerminatingStopsLivenessOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := podOf(v1.Container{LivenessProbe: execProbe("live", 5, 1), ReadinessProbe: execProbe("ready", 5, 1)})
		r.sync(pod, "id1")
		r.pass(6 * time.Second)
		r.Sync(pod, "", []Target{{Name: "c", ContainerID: "id1", Terminating: true}})
		r.set("live", 1)
		r.set("ready", 1)
		r.pass(10 * time.Second)
		r.wantTimes("live", 0, 5)
		r.wantTimes("ready", 0, 5, 10, 15)
		r.want(Result{ContainerID: "id1", Started: true})
	})
}

func TestSidecarsAndInitContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := podOf(v1.Container{})
		pod.Spec.InitContainers = []v1.Container{
			{Name: "init"},
			{
				Name:           "side",
				RestartPolicy:  ptr.To(v1.ContainerRestartPolicyAlways),
				StartupProbe:   execProbe("start", 1, 1),
				ReadinessProbe: execProbe("ready", 1, 1),
			},
		}
		r.Sync(pod, "", []Target{
			{Name: "init", ContainerID: "i"}, {Name: "side", ContainerID: "s"}, {Name: "debug", ContainerID: "d"},
		})
		synctest.Wait()
		got := r.Results(uid)
		if len(got) != 2 || got["init"] != (Result{ContainerID: "i", Started: true}) ||
			got["side"] != (Result{ContainerID: "s", Started: true, Ready: true}) {
			t.Errorf("results %+v", got)
		}
	})
}

func TestAdoptedContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		pod := podOf(v1.Container{ReadinessProbe: execProbe("ready", 10, 3), StartupProbe: execProbe("start", 10, 3)})
		known := Result{ContainerID: "id1", Started: true, Ready: true}
		r.jitter = func(d time.Duration) time.Duration { return d / 4 }
		r.Restore(uid, Snapshot{"c": known, "later": {ContainerID: "x"}})
		r.set("ready", 1)
		r.Sync(pod, "", []Target{{Name: "c", ContainerID: "id1", StartedAt: r.start.Add(-time.Hour)}})
		r.want(known)
		if got := r.Snapshot(uid); got["c"] != known || got["later"].ContainerID != "x" {
			t.Errorf("snapshot %+v", got)
		}
		r.pass(13 * time.Second)
		r.wantTimes("start")
		r.wantTimes("ready", 2.5, 12.5)
		r.want(known)
		r.wantChanges(0)
		r.pass(10 * time.Second)
		r.want(Result{ContainerID: "id1", Started: true})
	})
}

func TestSameCommandRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.setFunc("check", func(ctx context.Context) (int, []byte, error) {
			select {
			case <-time.After(100 * time.Millisecond):
				return 0, nil, nil
			case <-ctx.Done():
				return 0, nil, ctx.Err()
			}
		})
		pod := podOf(v1.Container{LivenessProbe: execProbe("check", 5, 1), ReadinessProbe: execProbe("check", 5, 1)})
		r.sync(pod, "id1")
		r.pass(6 * time.Second)
		r.wantTimes("check", 0, 5)
		r.want(Result{ContainerID: "id1", Started: true, Ready: true})

		// Either probe may run the shared command at 10 s. The end of the liveness probe at that
		// time must not affect readiness.
		r.pass(4*time.Second + 50*time.Millisecond)
		r.Sync(pod, "", []Target{{Name: "c", ContainerID: "id1", Terminating: true}})
		r.pass(time.Second)
		r.wantEvents()
		r.want(Result{ContainerID: "id1", Started: true, Ready: true})
	})
}

func TestHangingExecsDelayButDoNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.setFunc("hang", func(ctx context.Context) (int, []byte, error) { <-ctx.Done(); return 0, nil, ctx.Err() })
		for i := range defaultParallelExecs {
			hang := execProbe("hang", 100, 3)
			hang.TimeoutSeconds = 100
			pod := podOf(v1.Container{LivenessProbe: hang})
			pod.UID = types.UID(fmt.Sprint("hang", i))
			r.Sync(pod, "", []Target{{Name: "c", ContainerID: string(pod.UID)}})
		}
		synctest.Wait()
		r.sync(podOf(v1.Container{LivenessProbe: execProbe("live", 2, 1)}), "id1")
		r.pass(7 * time.Second)
		r.wantTimes("live", 2, 4, 6)
		r.want(Result{ContainerID: "id1", Started: true, Ready: true})
	})
}

func TestSyncBeforeRunAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		m := New(Config{},
			Deps{Exec: func(context.Context, string, []string, time.Duration) (int, []byte, error) {
				ran++
				return 0, nil, nil
			}})
		pod := podOf(v1.Container{ReadinessProbe: execProbe("ready", 10, 3)})
		target := []Target{{Name: "c", ContainerID: "id1"}}
		m.Sync(pod, "", target)
		synctest.Wait()
		if ran != 0 {
			t.Error("probed before Run")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		if !m.Results(uid)["c"].Ready {
			t.Error("not probed after Run")
		}
		if err := m.Run(ctx); err == nil {
			t.Error("Run twice: no error")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		m.Sync(pod, "", []Target{{Name: "c", ContainerID: "id2"}})
		synctest.Wait()
		if ran != 1 {
			t.Errorf("probed %d times, want once", ran)
		}
	})
}
