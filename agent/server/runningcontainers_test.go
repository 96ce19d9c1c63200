package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// busyRuntime takes a second to report a container, which is in this state, or fails.
type busyRuntime struct {
	Runtime
	asked atomic.Int64
	state atomic.Int32
	fails atomic.Bool
	// panics is true if the runtime's client is broken.
	panics atomic.Bool
}

func (r *busyRuntime) ContainerStatus(context.Context, string) (*runtimeapi.ContainerStatus, error) {
	r.asked.Add(1)
	state := runtimeapi.ContainerState(r.state.Load())
	time.Sleep(time.Second)
	if r.panics.Load() {
		panic("boom")
	}
	if r.fails.Load() {
		return nil, errdefs.ErrNotFound
	}
	return &runtimeapi.ContainerStatus{State: state}, nil
}

// TestRunningContainers asks for one container often: that it runs is asked once for all, and that
// it has ended is heard by the next one who asks.
func TestRunningContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &busyRuntime{}
		rt.state.Store(int32(runtimeapi.ContainerState_CONTAINER_RUNNING))
		c := newRunningContainers(rt, slog.New(slog.DiscardHandler))
		ask := func(callers int, want runtimeapi.ContainerState, wantAsked int64) {
			t.Helper()
			before := rt.asked.Load()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					if st, err := c.status(t.Context(), "a"); err != nil || st.State != want {
						t.Errorf("%v, %v; want %v", st, err, want)
					}
				})
			}
			all.Wait()
			if n := rt.asked.Load() - before; n != wantAsked {
				t.Errorf("%d callers: the runtime was asked %d times, not %d", callers, n, wantAsked)
			}
		}
		const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
		ask(100, running, 1)
		ask(1, running, 1) // the answer is as old as the question
		rt.state.Store(int32(exited))
		ask(100, exited, 1)
		ask(1, exited, 1)
		if len(c.known) > 1 {
			t.Errorf("%d answers are kept", len(c.known))
		}
		rt.fails.Store(true)
		if _, err := c.status(t.Context(), "a"); !errdefs.IsNotFound(err) {
			t.Errorf("a container that is gone: %v", err)
		}
	})
}

// TestRecentlyRunningContainer answers from what is known, for a time that one who asks again and
// again does not notice.
func TestRecentlyRunningContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &busyRuntime{}
		c := newRunningContainers(rt, slog.New(slog.DiscardHandler))
		now := runningContainer{time.Now(), &runtimeapi.ContainerStatus{}}
		c.keep("a", now)
		time.Sleep(runningValid - time.Millisecond)
		if st, err := c.status(t.Context(), "a"); st != now.status || err != nil || rt.asked.Load() != 0 {
			t.Errorf("%v, %v after %d questions", st, err, rt.asked.Load())
		}
		time.Sleep(time.Millisecond)
		leave, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.status(leave, "a"); !errors.Is(err, context.Canceled) || rt.asked.Load() > 1 {
			t.Errorf("a caller that left: %v", err)
		}
		c.keep("b", runningContainer{time.Now(), now.status})
		if len(c.known) != 1 {
			t.Errorf("%d answers are kept", len(c.known))
		}
		time.Sleep(time.Minute) // the question goes on for others
	})
}

// TestRuntimeThatPanics asks a runtime whose client panics: the agent goes on, and asks it again.
func TestRuntimeThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &busyRuntime{}
		rt.panics.Store(true)
		c := newRunningContainers(rt, slog.New(slog.DiscardHandler))
		if _, err := c.status(t.Context(), "a"); err == nil {
			t.Error("a panic is no error")
		}
		rt.panics.Store(false)
		if _, err := c.status(t.Context(), "a"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}
