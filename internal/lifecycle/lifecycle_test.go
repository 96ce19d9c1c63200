package lifecycle

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

func TestBesideIsJoined(t *testing.T) {
	ended := false
	stop := Beside(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		ended = true
		return nil
	})
	stop()
	if !ended {
		t.Error("it still runs")
	}
}

func TestLoopsStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []string
		loop := func(name string) Loop {
			return Loop{name, func(ctx context.Context) error {
				<-ctx.Done()
				ended = append(ended, name)
				return ctx.Err()
			}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- Run(ctx, []Loop{loop("a"), loop("b"), loop("c")}) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !slices.Equal(ended, []string{"c", "b", "a"}) {
			t.Errorf("ended: %v", ended)
		}
	})
}

// A loop that gives up ends the others, and is reported once, not again when it is joined.
func TestLoopThatFailsIsReportedOnce(t *testing.T) {
	broken, late := errors.New("broken"), errors.New("late")
	err := Run(t.Context(), []Loop{
		{"lasting", func(ctx context.Context) error { <-ctx.Done(); return late }},
		{"thing", func(context.Context) error { return broken }},
	})
	if want := "thing: broken\nstopping lasting: late"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
