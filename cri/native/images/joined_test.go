package images

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
)

func newJoined() *joined { return &joined{calls: map[string]*call{}} }

func TestCallersShareACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoined()
		release := make(chan struct{})
		calls := map[string]int{}
		results := make(chan string)
		for _, key := range []string{"a", "a", "b", "a"} {
			go func() {
				got, err := j.do(t.Context(), key, func(context.Context) (string, error) {
					calls[key]++ // synctest.Wait orders the calls: a key has one at a time
					<-release
					return "result of " + key, nil
				})
				if err != nil || got != "result of "+key {
					t.Errorf("%s: got %q, %v", key, got, err)
				}
				results <- key
			}()
			synctest.Wait()
		}
		close(release)
		for range 4 {
			<-results
		}
		if calls["a"] != 1 || calls["b"] != 1 {
			t.Errorf("calls are %v, want one of each", calls)
		}
		// A finished call is not shared.
		_, err := j.do(t.Context(), "a", func(context.Context) (string, error) { return "", errors.New("no") })
		if err == nil {
			t.Error("a later call got the earlier result")
		}
		j.close()
	})
}

func TestTheCallEndsWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoined()
		ended := 0
		wait := func(ctx context.Context) (string, error) {
			<-ctx.Done()
			ended++
			return "", ctx.Err()
		}
		first, giveUpFirst := context.WithCancel(t.Context())
		second, giveUpSecond := context.WithCancel(t.Context())
		defer giveUpSecond()
		for _, ctx := range []context.Context{first, second} {
			go func() {
				if _, err := j.do(ctx, "a", wait); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			}()
		}
		synctest.Wait()
		giveUpFirst()
		synctest.Wait()
		if ended != 0 {
			t.Error("the call ended though somebody waits")
		}
		giveUpSecond()
		synctest.Wait()
		if ended != 1 {
			t.Error("the call did not end")
		}
		j.close()
	})
}

// Who comes after the last one has given up gets a call of its own, not the one that is ending.
func TestNoCallerGetsACallThatIsEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoined()
		slow := make(chan struct{})
		ctx, giveUp := context.WithCancel(t.Context())
		go func() {
			_, _ = j.do(ctx, "a", func(context.Context) (string, error) { <-slow; return "", errors.New("old") })
		}()
		synctest.Wait()
		giveUp()
		synctest.Wait()
		got, err := j.do(t.Context(), "a", func(context.Context) (string, error) { return "new", nil })
		if got != "new" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		close(slow)
		j.close()
	})
}

func TestCloseEndsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJoined()
		got := make(chan error, 1)
		go func() {
			_, err := j.do(t.Context(), "a", func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", context.Cause(ctx)
			})
			got <- err
		}()
		synctest.Wait()
		j.close()
		if err := <-got; !errors.Is(err, errClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := j.do(t.Context(), "a", nil); !errdefs.IsUnavailable(err) {
			t.Errorf("after the end: got %v", err)
		}
	})
}

func TestAnEndedCallerStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := newJoined().do(ctx, "a", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
