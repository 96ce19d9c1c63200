package flight

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// TestPanic has a question panic: all who wait for its answer get an error, the log has the stack,
// and the next one is answered.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		g := Group[int]{Log: slog.New(slog.NewTextHandler(&log, nil))}
		begin := make(chan struct{})
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				_, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { <-begin; panic("boom") })
				if err == nil || !strings.Contains(err.Error(), "boom") {
					t.Errorf("the error is %v", err)
				}
			})
		}
		synctest.Wait()
		close(begin)
		all.Wait()
		if !strings.Contains(log.String(), "flight_test.go") || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("the log is %q", log.String())
		}
		if v, err := g.Do(t.Context(), "a", func(context.Context) (int, error) { return 7, nil }); v != 7 || err != nil {
			t.Errorf("the next answer is %d, %v", v, err)
		}
	})
}

// TestLeaving has the first of two callers leave: the other one gets the answer.
func TestLeaving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string]
		ctx, leave := context.WithCancel(t.Context())
		begin, left := make(chan struct{}), make(chan error, 1)
		ask := func(ctx context.Context) (string, error) { <-begin; return "yes", ctx.Err() }
		go func() { _, err := g.Do(ctx, "a", ask); left <- err }()
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		got := make(chan string, 1)
		go func() {
			v, err := g.Do(t.Context(), "a", func(context.Context) (string, error) { return "again", nil })
			if err != nil {
				t.Error(err)
			}
			got <- v
		}()
		synctest.Wait()
		close(begin)
		if v := <-got; v != "yes" {
			t.Errorf("the answer is %q", v)
		}
	})
}
