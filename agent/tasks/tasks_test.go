package tasks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble gives fn a group in fake time whose wakes are counted.
func bubble(t *testing.T, fn func(t *testing.T, g *Group, wakes *atomic.Int32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wakes atomic.Int32
		g := New(ctx, func() { wakes.Add(1) })
		defer g.Wait()
		defer cancel()
		fn(t, g, &wakes)
	})
}

func forever(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func TestTaskRunsOnceAndIsCollectedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, wakes *atomic.Int32) {
		due := time.Now().Add(time.Minute)
		fail := errors.New("no")
		work := func(context.Context) error { time.Sleep(time.Second); return fail }
		if !g.Start("stop/a", due, work) || g.Start("stop/a", due, work) {
			t.Error("one key runs twice at once")
		}
		if got, ok := g.Deadline("stop/a"); !ok || got != due {
			t.Errorf("deadline %s, %v", got, ok)
		}
		if got := g.Active(); len(got) != 1 || got["stop/a"] != due {
			t.Errorf("active %v", got)
		}
		if n := len(g.Collect()); n != 0 || wakes.Load() != 0 {
			t.Errorf("%d tasks ended before their time, %d wakes", n, wakes.Load())
		}
		time.Sleep(2 * time.Second)
		if wakes.Load() != 1 {
			t.Errorf("%d wakes", wakes.Load())
		}
		if _, ok := g.Deadline("stop/a"); ok || len(g.Active()) != 0 {
			t.Error("it is active after its end")
		}
		if got := fmt.Sprint(g.Collect()); got != "map[stop/a:no]" {
			t.Errorf("collected %s", got)
		}
		if n := len(g.Collect()); n != 0 {
			t.Errorf("%d tasks collected twice", n)
		}
	})
}

func TestWakeFindsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *Group
		seen := make(chan string, 1)
		g = New(t.Context(), func() { seen <- fmt.Sprint(g.Collect(), len(g.Active())) })
		g.Start("k", time.Time{}, func(context.Context) error { return nil })
		if got := <-seen; got != "map[k:<nil>] 0" {
			t.Errorf("when woken: %s", got)
		}
		g.Wait()
	})
}

func TestNewTaskReplacesAnOldEnd(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, _ *atomic.Int32) {
		g.Start("k", time.Time{}, func(context.Context) error { return errors.New("old") })
		synctest.Wait()
		g.Start("k", time.Time{}, forever)
		if got := g.Collect(); len(got) != 0 {
			t.Errorf("collected %v while it runs again", got)
		}
	})
}

func TestCancelWaitsForTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, wakes *atomic.Int32) {
		g.Start("k", time.Time{}, func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second) // it takes its time
			return ctx.Err()
		})
		g.Start("other", time.Time{}, forever)
		begin := time.Now()
		g.Cancel(t.Context(), "k")
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("cancel returned after %s", d)
		}
		if !errors.Is(g.Collect()["k"], context.Canceled) {
			t.Error("its end is not known when cancel returns")
		}
		if !g.Start("k", time.Time{}, func(context.Context) error { return nil }) {
			t.Error("the key is not free when cancel returns")
		}
		g.Cancel(t.Context(), "nothing")
		synctest.Wait()
		if _, ok := g.Deadline("other"); !ok || wakes.Load() != 2 {
			t.Errorf("the other task was cancelled, too, or %d wakes", wakes.Load())
		}
	})
}

func TestCancelGivesUpWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, _ *atomic.Int32) {
		stuck := make(chan struct{})
		g.Start("k", time.Time{}, func(context.Context) error { <-stuck; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Cancel(ctx, "k")
		if _, ok := g.Deadline("k"); !ok {
			t.Error("a task that has not returned is not active")
		}
		close(stuck)
	})
}

func TestContextEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := New(ctx, func() {})
		for i := range 5 {
			g.Start(fmt.Sprint(i), time.Time{}, forever)
		}
		cancel()
		g.Wait()
		if len(g.Active()) != 0 || len(g.Collect()) != 5 {
			t.Error("not all tasks have ended")
		}
		if g.Start("late", time.Time{}, forever) {
			t.Error("a task starts after the end")
		}
	})
}
