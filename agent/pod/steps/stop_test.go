package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/hooks"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/retry"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// stage is a pod with containers that run, a runtime that stops them, and hooks. It keeps what
// happens, with the second.
type stage struct {
	cri.ContainerRuntime
	t       *testing.T
	stopper *Stopper
	record  *checkpoint.Record
	tasks   *tasks.Group
	pod     *v1.Pod
	stop    *worker.Stop
	begin   time.Time

	mu     sync.Mutex
	notes  []string
	hook   func(ctx context.Context) error
	stops  func(ctx context.Context) error
	ended  bool // what the runtime says of every container
	silent bool // it says nothing
	events []string
}

// newStage makes a stage whose containers have a preStop hook and 30 s of grace.
func newStage(t *testing.T, containers ...string) *stage {
	s := &stage{t: t, record: &checkpoint.Record{}, tasks: tasks.New(t.Context(), func() {}, nil), begin: time.Now()}
	s.pod = &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "p"}}
	for _, name := range containers {
		s.pod.Spec.Containers = append(s.pod.Spec.Containers, v1.Container{
			Name:      name,
			Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bye"}}}},
		})
	}
	s.hook = func(context.Context) error { return nil }
	s.stops = s.hook
	s.stopper = &Stopper{
		Runtime: s, Events: s, HostIPs: func() []string { return nil },
		GiveUp: func(_ context.Context, uid types.UID) error { s.note("give up %s", uid); return nil },
		Hooks: hooks.New(hooks.Config{},
			hooks.Deps{Exec: func(ctx context.Context, id string, _ []string, _ time.Duration) (int, []byte, error) {
				s.note("hook %s", id)
				return 0, nil, s.hook(ctx)
			}}),
	}
	return s
}

func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notes = append(s.notes, fmt.Sprintf("%d ", int(time.Since(s.begin).Seconds()))+fmt.Sprintf(format, args...))
}

func (s *stage) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	s.note("stop %s %s", id, grace)
	return s.stops(ctx)
}

func (s *stage) ContainerStatus(context.Context, string) (*runtimeapi.ContainerStatus, error) {
	if s.silent {
		return nil, context.DeadlineExceeded
	}
	if s.ended {
		return &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED}, nil
	}
	return &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING}, nil
}

// Pod takes events.
func (s *stage) Pod(_ *v1.Pod, _, _, reason, _ string) { s.events = append(s.events, reason) }

// sync begins a sync in which everything runs.
func (s *stage) sync() *Sync {
	p := &Sync{Given: Given{
		Pod: s.pod, Record: s.record, Tasks: s.tasks, Stop: s.stop, Log: slog.New(slog.DiscardHandler),
		Save: func() error { s.note("save"); return nil },
	}}
	for i := range s.pod.Spec.Containers {
		p.Observed.Containers = append(p.Observed.Containers, s.container(s.pod.Spec.Containers[i].Name))
	}
	Collect(p)
	return p
}

func (s *stage) container(name string) *plan.Container {
	return &plan.Container{ContainerStatus: &runtimeapi.ContainerStatus{
		Id:        name,
		Metadata:  &runtimeapi.ContainerMetadata{Name: name},
		State:     runtimeapi.ContainerState_CONTAINER_RUNNING,
		StartedAt: 1,
	}}
}

// kill asks for all containers to stop. Those named are held.
func (s *stage) kill(p *Sync, held ...string) time.Time {
	p.Actions.Kill = nil
	for _, c := range p.Observed.Running() {
		if p.Busy(c.Id) != plan.Stopping {
			spec, _ := plan.FindContainer(s.pod, c.Name())
			p.Actions.Kill = append(p.Actions.Kill, plan.Kill{
				Container: c,
				Spec:      spec,
				Held:      slices.Contains(held, c.Name()),
			})
		}
	}
	return s.stopper.stopAll(s.t.Context(), p)
}

// want compares what happened since the last call, in any order.
func (s *stage) want(notes ...string) {
	s.t.Helper()
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.notes)
	slices.Sort(notes)
	if !slices.Equal(s.notes, notes) {
		s.t.Errorf("what happened:\n %q\nwant\n %q", s.notes, notes)
	}
	s.notes = nil
}

func sleepFor(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { retry.Sleep(ctx, d); return ctx.Err() }
}

func TestStopGoesStepByStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a")
		s.hook = sleepFor(10 * time.Second)
		s.kill(s.sync())
		s.want("0 hook a")
		s.kill(s.sync()) // the hook is under way
		time.Sleep(11 * time.Second)
		p := s.sync()
		s.want("11 save")
		s.kill(p)
		s.kill(p)
		s.want("11 stop a 19s")
		if got := strings.Join(s.events, " "); got != "Killing" {
			t.Errorf("events %s", got)
		}
		if st := s.record.Stops["a"]; !st.Hooked || !st.Signaled || st.Since != s.begin {
			t.Errorf("noted %+v", st)
		}
		Settle(t.Context(), &Sync{Given: Given{Record: s.record, Tasks: s.tasks}})
		if len(s.record.Stops) != 0 {
			t.Error("it is noted after the container's end")
		}
		s.tasks.Wait()
	})
}

// A hook may end at any moment of a sync. The sync uses what it knew at its start.
func TestHookThatEndsDuringASyncIsNotRunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a")
		s.hook = sleepFor(time.Second)
		s.kill(s.sync())
		p := s.sync()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.stopper.Resume(t.Context(), p)
		s.kill(p)
		s.want("0 hook a")
		s.kill(s.sync())
		s.want("2 save", "2 stop a 28s")
		s.tasks.Wait()
	})
}

// A hook that needs more than the grace is not waited for, and lives until its container has ended.
func TestHookLivesUntilItsContainerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a")
		ended := time.Duration(0)
		s.hook = func(ctx context.Context) error { <-ctx.Done(); ended = time.Since(s.begin); return ctx.Err() }
		s.stops = sleepFor(2 * time.Second)
		s.kill(s.sync())
		time.Sleep(31 * time.Second)
		s.kill(s.sync())
		s.want("0 hook a", "31 save", "31 stop a 2s")
		if got := strings.Join(s.events, " "); got != "Killing FailedPreStopHook" || ended != 0 {
			t.Errorf("events %s, the hook has ended after %s", got, ended)
		}
		time.Sleep(3 * time.Second)
		if again := s.sync(); again.Busy("a") != "" {
			t.Errorf("busy: %s", again.Busy("a"))
		}
		Settle(t.Context(), &Sync{Given: Given{Record: s.record, Tasks: s.tasks}})
		if ended != 34*time.Second {
			t.Errorf("the hook ended after %s", ended)
		}
		s.tasks.Wait()
	})
}

// If the runtime fails to stop a container, its hook outlives the grace by some seconds at most.
func TestHookEndsWhereTheRuntimeHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a")
		s.hook = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s.kill(s.sync())
		time.Sleep(30*time.Second + hookOvertime + time.Second)
		if s.tasks.Has(hookTask + "a") {
			t.Error("the hook goes on")
		}
		s.tasks.Wait()
	})
}

func TestHeldUntilItsTurnOrTheGraceIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "side")
		s.stops = sleepFor(100 * time.Second)
		s.kill(s.sync(), "side")
		s.want("0 hook a", "0 hook side")
		if again := s.kill(s.sync(), "side"); !again.Equal(s.begin.Add(30 * time.Second)) {
			t.Errorf("again at %s", again)
		}
		s.want("0 save", "0 stop a 30s")
		time.Sleep(29 * time.Second)
		s.kill(s.sync(), "side")
		s.want()
		time.Sleep(time.Second)
		s.kill(s.sync(), "side")
		s.want("30 stop side 2s")
		time.Sleep(time.Hour)
		s.tasks.Wait()
	})
}

func TestShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "side")
		s.hook = func(ctx context.Context) error { // a hangs
			if len(s.notes) == 1 {
				<-ctx.Done()
			}
			return nil
		}
		s.stops = sleepFor(100 * time.Second)
		p := s.sync()
		for _, c := range p.Observed.Containers { // one after the other, so that container a hangs
			spec, _ := plan.FindContainer(s.pod, c.Name())
			s.stopper.stop(t.Context(), p, plan.Kill{Container: c, Spec: spec, Held: c.Name() == "side"})
			synctest.Wait()
		}
		s.kill(s.sync(), "side")
		s.want("0 hook a", "0 hook b", "0 hook side", "0 save", "0 stop b 30s")
		time.Sleep(time.Second)
		s.stop = &worker.Stop{Grace: ptr.To(int64(5))}
		p = s.sync()
		s.stopper.shorten(t.Context(), p)
		s.want("1 stop b 5s")
		again := s.kill(s.sync(), "side")
		s.want("1 stop a 5s")
		if !again.Equal(s.begin.Add(6 * time.Second)) {
			t.Errorf("the sidecar has its turn at %s", again)
		}
		s.stopper.shorten(t.Context(), s.sync()) // nothing new
		s.want()
		time.Sleep(time.Hour)
		s.tasks.Wait()
	})
}

func TestStopThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err           error
		ended, silent bool
		want          []string
	}{
		"away": {
			errdefs.ErrUnavailable, false, true,
			[]string{
				"0 stop a 3s", "0 stop a 2.9s", "0 stop a 2.7s", "0 stop a 2.3s", "1 stop a 2s", "2 stop a 2s",
				"3 stop a 2s",
			},
		},
		"timed out": {
			context.DeadlineExceeded, false, false,
			[]string{
				"0 stop a 3s", "0 stop a 2.9s", "0 stop a 2.7s", "0 stop a 2.3s", "1 stop a 2s", "3 stop a 2s",
				"0 give up u", "0 give up u", "0 give up u", "0 give up u", "1 give up u", "3 give up u",
			},
		},
		"silent": { // nobody knows of a SIGKILL
			context.DeadlineExceeded, false, true,
			[]string{
				"0 stop a 3s", "0 stop a 2.9s", "0 stop a 2.7s", "0 stop a 2.3s", "1 stop a 2s", "3 stop a 2s",
			},
		},
		"ended": {errors.New("no"), true, false, []string{"0 stop a 3s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				s := newStage(t, "a")
				s.ended, s.silent = tc.ended, tc.silent
				s.stops = func(context.Context) error { return tc.err }
				done := make(chan error, 1)
				go func() {
					done <- s.stopper.end(ctx, s.pod, "a", "a",
						plan.ContainerStop{Since: time.Now(), Grace: 3 * time.Second}, slog.New(slog.DiscardHandler))
				}()
				time.Sleep(4 * time.Second)
				s.want(tc.want...)
				cancel()
				if err := <-done; (err == nil) != tc.ended {
					t.Errorf("it ended with %v", err)
				}
			})
		})
	}
}

func TestPostStartThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		err            error
		noted, stopped bool
	}{
		"succeeded":              {nil, false, false},
		"failed":                 {errors.New("exited with 1"), true, true},
		"cut off by its stop":    {context.Canceled, true, false},
		"container was too slow": {context.DeadlineExceeded, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, "a")
				s.record.PostStart = map[string]bool{"a": true}
				s.tasks.Start(postStartTask+"a", func(context.Context) error { return tc.err })
				s.tasks.Wait()
				Collect(s.sync())
				if stop, stopped := s.record.Stops["a"]; stopped != tc.stopped ||
					stopped && stop.Grace != 30*time.Second {
					t.Errorf("stop %+v, %v", stop, stopped)
				}
				if s.record.PostStart["a"] != tc.noted {
					t.Errorf("noted %v", s.record.PostStart)
				}
			})
		})
	}
}

func TestHooksOfEndedContainersAreCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b")
		s.record.PostStart = map[string]bool{"gone": true}
		for _, key := range []string{postStartTask + "gone", preStopTask + "gone", preStopTask + "a"} {
			s.tasks.Start(key, sleepFor(time.Minute))
		}
		Settle(t.Context(), s.sync())
		if got := s.tasks.Active(); !slices.Equal(got, []string{preStopTask + "a"}) || len(s.record.PostStart) != 0 {
			t.Errorf("active %q, noted %v", got, s.record.PostStart)
		}
		s.tasks.Wait()
	})
}

// A call that makes something may finish after its sync is overtaken, within a limit. None begins
// afterwards.
func TestFinishing(t *testing.T) {
	for name, tc := range map[string]struct {
		takes, want time.Duration
		late        bool // the sync is overtaken before it begins
		err         error
	}{
		"quick":    {takes: 2 * time.Second, want: 2 * time.Second},
		"hangs":    {takes: time.Hour, want: 6 * time.Second, err: errOver},
		"too late": {takes: time.Hour, late: true, err: errOver},
		"unharmed": {takes: time.Millisecond, want: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, overtake := context.WithCancelCause(t.Context())
				begin := time.Now()
				if tc.late {
					overtake(errOver)
				} else {
					time.AfterFunc(time.Second, func() { overtake(errOver) })
				}
				making, done := finishing(ctx)
				retry.Sleep(making, tc.takes)
				if took := time.Since(begin); took != tc.want || !errors.Is(context.Cause(making), tc.err) {
					t.Errorf("it took %s and ended with %v", took, context.Cause(making))
				}
				done()
				time.Sleep(time.Minute)
			})
		})
	}
}

var errOver = errors.New("overtaken")

func TestUnstarted(t *testing.T) {
	ended := func(id string, startedAt int64) *plan.Container {
		return &plan.Container{SandboxID: "S0", Hash: "h", ContainerStatus: &runtimeapi.ContainerStatus{
			Id:         id,
			State:      runtimeapi.ContainerState_CONTAINER_EXITED,
			StartedAt:  startedAt,
			FinishedAt: 9,
			ExitCode:   128,
			Reason:     "StartError",
		}}
	}
	rec := &checkpoint.Record{StartFailed: map[string]bool{"failed": true}}
	saw := plan.Observed{Containers: []*plan.Container{ended("ran", 5), ended("failed", 0), ended("cut off", 0)}}
	got := Unstarted(saw, rec)
	for i, want := range []bool{false, false, true} {
		c := got.Containers[i]
		if c.Created() != want || want && (c.ExitCode != 0 || c.Reason != "" || c.SandboxID != "S0" || c.Hash != "h") {
			t.Errorf("%s: %+v", c.Id, c)
		}
		if saw.Containers[i].Created() {
			t.Errorf("%s: what was seen was changed", c.Id)
		}
	}
}
