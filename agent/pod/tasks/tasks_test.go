package tasks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// bubble gives fn a group in fake time whose wakes are counted.
func bubble(t *testing.T, fn func(t *testing.T, g *Group, wakes *atomic.Int32)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var wakes atomic.Int32
		g := New(ctx, func() { wakes.Add(1) }, nil)
		defer g.Wait()
		defer cancel()
		fn(t, g, &wakes)
	})
}

func forever(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// collect returns how tasks ended since the last look.
func collect(g *Group) map[string]error {
	_, ended := g.Look()
	return ended
}

func TestTaskRunsOnceAndIsCollectedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, wakes *atomic.Int32) {
		fail := errors.New("no")
		work := func(context.Context) error { time.Sleep(time.Second); return fail }
		if !g.Start("stop/a", work) || g.Start("stop/a", work) {
			t.Error("one key runs twice at once")
		}
		if got := g.Active(); !g.Has("stop/a") || len(got) != 1 || got[0] != "stop/a" {
			t.Errorf("active %v", got)
		}
		if n := len(collect(g)); n != 0 || wakes.Load() != 0 {
			t.Errorf("%d tasks ended before their time, %d wakes", n, wakes.Load())
		}
		time.Sleep(2 * time.Second)
		if wakes.Load() != 1 {
			t.Errorf("%d wakes", wakes.Load())
		}
		if g.Has("stop/a") || len(g.Active()) != 0 {
			t.Error("it is active after its end")
		}
		if got := fmt.Sprint(collect(g)); got != "map[stop/a:no]" {
			t.Errorf("collected %s", got)
		}
		if n := len(collect(g)); n != 0 {
			t.Errorf("%d tasks collected twice", n)
		}
	})
}

// What is over in a moment wakes nobody, and what goes on is not waited for again.
func TestBrief(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, wakes *atomic.Int32) {
		fail := errors.New("no")
		ended, err := g.Brief(t.Context(), "k", time.Second, func(context.Context) error {
			time.Sleep(time.Second / 2)
			return fail
		})
		synctest.Wait()
		if !ended || !errors.Is(err, fail) || wakes.Load() != 0 || len(collect(g)) != 0 {
			t.Errorf("ended %v, %v, %d wakes", ended, err, wakes.Load())
		}
		hangs := func(context.Context) error { time.Sleep(time.Minute); return fail }
		for _, wait := range []time.Duration{time.Second, 0} {
			begin := time.Now()
			if ended, err := g.Brief(t.Context(), "k", time.Second, hangs); ended || err != nil || time.Since(begin) != wait {
				t.Errorf("ended %v, %v after %v, want %v", ended, err, time.Since(begin), wait)
			}
		}
		if !g.Has("k") {
			t.Error("it does not go on")
		}
		time.Sleep(time.Hour)
		if g.Has("k") || wakes.Load() != 1 || len(collect(g)) != 0 {
			t.Errorf("at its end there were %d wakes", wakes.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		if ended, err := g.Brief(ctx, "k", time.Second, hangs); ended || err != nil || time.Since(begin) != 0 {
			t.Errorf("in a sync that has ended: ended %v, %v after %v", ended, err, time.Since(begin))
		}
	})
}

func TestWakeFindsTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *Group
		seen := make(chan string, 1)
		g = New(t.Context(), func() { seen <- fmt.Sprint(collect(g), len(g.Active())) }, nil)
		g.Start("k", func(context.Context) error { return nil })
		if got := <-seen; got != "map[k:<nil>] 0" {
			t.Errorf("when woken: %s", got)
		}
		g.Wait()
	})
}

func TestNewTaskReplacesAnOldEnd(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, _ *atomic.Int32) {
		g.Start("k", func(context.Context) error { return errors.New("old") })
		synctest.Wait()
		g.Start("k", forever)
		if got := collect(g); len(got) != 0 {
			t.Errorf("collected %v while it runs again", got)
		}
	})
}

func TestCancelWaitsForTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, wakes *atomic.Int32) {
		g.Start("k", func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(3 * time.Second) // it takes its time
			return ctx.Err()
		})
		g.Start("other", forever)
		begin := time.Now()
		g.Cancel(t.Context(), "k")
		if d := time.Since(begin); d != 3*time.Second {
			t.Errorf("cancel returned after %s", d)
		}
		if !errors.Is(collect(g)["k"], context.Canceled) {
			t.Error("its end is not known when cancel returns")
		}
		if !g.Start("k", func(context.Context) error { return nil }) {
			t.Error("the key is not free when cancel returns")
		}
		g.Cancel(t.Context(), "nothing")
		synctest.Wait()
		if !g.Has("other") || wakes.Load() != 2 {
			t.Errorf("the other task was cancelled, too, or %d wakes", wakes.Load())
		}
	})
}

func TestCancelGivesUpWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, _ *atomic.Int32) {
		stuck := make(chan struct{})
		g.Start("k", func(context.Context) error { <-stuck; return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		g.Cancel(ctx, "k")
		if !g.Has("k") {
			t.Error("a task that has not returned is not active")
		}
		close(stuck)
	})
}

func TestContextEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		g := New(ctx, func() {}, nil)
		for i := range 5 {
			g.Start(fmt.Sprint(i), forever)
		}
		cancel()
		g.Wait()
		if len(g.Active()) != 0 || len(collect(g)) != 5 {
			t.Error("not all tasks have ended")
		}
		if g.Start("late", forever) {
			t.Error("a task starts after the end")
		}
	})
}

// A task that panics ends with the error that caught makes of it.
func TestPanicEndsTheTask(t *testing.T) {
	woken := make(chan struct{}, 1)
	g := New(t.Context(), func() { woken <- struct{}{} }, func(what any) error { return fmt.Errorf("caught %v", what) })
	g.Start("stop", func(context.Context) error { panic("it") })
	<-woken
	if active, ended := g.Look(); len(active) > 0 || ended["stop"] == nil || ended["stop"].Error() != "caught it" {
		t.Errorf("active %v, ended %v", active, ended)
	}
	g.Wait()
}

// A task that is left behind is nobody's: its key is free, nobody is woken and nobody waits for it.
// It learns that before it changes anything. Who changes something is not left behind.
func TestLeaveBehind(t *testing.T) {
	bubble(t, func(t *testing.T, g *Group, wakes *atomic.Int32) {
		answers, held := make(chan struct{}), make(chan error, 2)
		begin := time.Now()
		hangs := func(ctx context.Context) error { <-answers; held <- Hold(ctx); return nil }
		if ended, err := g.Brief(t.Context(), "k", time.Second, hangs); ended || err != nil {
			t.Errorf("ended %v, %v", ended, err)
		}
		if !g.Began("k").Equal(begin) || !g.Began("other").IsZero() {
			t.Errorf("began at %s", g.Began("k"))
		}
		for range 2 {
			if !g.LeaveBehind("k") || g.Has("k") {
				t.Error("it stays")
			}
		}
		g.Wait()
		again := make(chan struct{})
		if ended, _ := g.Brief(t.Context(), "k", time.Second, func(ctx context.Context) error {
			held <- Hold(ctx)
			<-again
			return nil
		}); ended {
			t.Error("the key is not free")
		}
		if err := <-held; err != nil || g.LeaveBehind("k") {
			t.Errorf("a task that may change something: %v", err)
		}
		close(answers)
		if err := <-held; !errors.Is(err, context.Canceled) {
			t.Errorf("a task that was left behind may change something: %v", err)
		}
		synctest.Wait()
		if !g.Has("k") || wakes.Load() != 0 {
			t.Errorf("the other task of the key is active: %v; %d wakes", g.Has("k"), wakes.Load())
		}
		close(again)
		synctest.Wait()
		if g.Has("k") || wakes.Load() != 1 {
			t.Errorf("the other task is active: %v; %d wakes", g.Has("k"), wakes.Load())
		}
		g.Start("started", forever)
		if g.LeaveBehind("started") || Hold(t.Context()) != nil {
			t.Error("a task that is no look is left behind")
		}
	})
}
