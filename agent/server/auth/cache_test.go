package auth

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func TestCacheForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache[int]
		asked := 0
		ask := func(context.Context) (int, time.Duration, error) {
			asked++
			return asked, time.Minute, nil
		}
		for _, step := range []struct {
			wait time.Duration
			want int
		}{{0, 1}, {59 * time.Second, 1}, {2 * time.Second, 2}} {
			time.Sleep(step.wait)
			if got, err := c.get(t.Context(), keyOf("a"), ask); err != nil || got != step.want {
				t.Errorf("after %v: %d %v, want %d", step.wait, got, err, step.want)
			}
		}
	})
}

func TestCacheRemembersNoErrors(t *testing.T) {
	var c cache[int]
	fail := func(context.Context) (int, time.Duration, error) { return 7, time.Hour, errors.New("no") }
	if _, err := c.get(t.Context(), keyOf("a"), fail); err == nil {
		t.Error("the error was lost")
	}
	if got, err := c.get(t.Context(), keyOf("a"), func(context.Context) (int, time.Duration, error) {
		return 1, 0, nil
	}); got != 1 || err != nil {
		t.Errorf("%d %v", got, err)
	}
	// Nothing is remembered for no time, either.
	if got, _ := c.get(t.Context(), keyOf("a"), func(context.Context) (int, time.Duration, error) {
		return 2, time.Hour, nil
	}); got != 2 {
		t.Errorf("got %d", got)
	}
}

// TestCacheAsksOnce shows that many who ask at once make one question, which outlives the one who
// asked first.
func TestCacheAsksOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache[string]
		var mu sync.Mutex
		asked, release := 0, make(chan struct{})
		ask := func(ctx context.Context) (string, time.Duration, error) {
			mu.Lock()
			asked++
			mu.Unlock()
			<-release
			return "yes", time.Minute, ctx.Err()
		}
		first, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := c.get(first, keyOf("a"), ask)
			left <- err
		}()
		synctest.Wait()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if v, err := c.get(t.Context(), keyOf("a"), ask); v != "yes" || err != nil {
					t.Errorf("%q %v", v, err)
				}
			})
		}
		synctest.Wait()
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("who left got %v", err)
		}
		close(release)
		wg.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c cache[int]
		put := func(name string, ttl time.Duration) {
			if _, err := c.get(t.Context(), keyOf(name), func(context.Context) (int, time.Duration, error) {
				return 0, ttl, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		put("long", time.Hour)
		for i := range maxCached - 1 {
			put(fmt.Sprint(i), time.Second)
		}
		time.Sleep(2 * time.Second)
		put("another", time.Hour)
		if len(c.entries) != 2 {
			t.Errorf("%d entries are left of which 2 are not over", len(c.entries))
		}
		for i := range 2 * maxCached {
			put(fmt.Sprint(i), time.Hour)
		}
		if len(c.entries) > maxCached {
			t.Errorf("%d entries", len(c.entries))
		}
	})
}

// TestCacheRemovesWhatIsOver has answers that nobody asks for again: they do not stay until the
// cache is full.
func TestCacheRemovesWhatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := cache[int]{most: 8}
		for i := range 4 {
			c.remember(keyOf(fmt.Sprint(i)), i, time.Minute)
		}
		time.Sleep(time.Minute + sweepPeriod)
		c.remember(keyOf("new"), 0, time.Minute)
		if len(c.entries) != 1 {
			t.Errorf("%d answers are kept, of which one is not over", len(c.entries))
		}
		for i := range 20 {
			c.remember(keyOf(fmt.Sprint(i)), i, time.Minute)
		}
		if len(c.entries) != 8 {
			t.Errorf("%d answers are kept", len(c.entries))
		}
	})
}

// TestCacheAfterAPanic has an ask that panics: whoever asked gets an error, and the next one is
// answered.
func TestCacheAfterAPanic(t *testing.T) {
	var c cache[int]
	if _, err := c.get(t.Context(), keyOf("a"), func(context.Context) (int, time.Duration, error) {
		panic("boom")
	}); err == nil {
		t.Error("the panic is no error")
	}
	if got, err := c.get(t.Context(), keyOf("a"), func(context.Context) (int, time.Duration, error) {
		return 1, time.Minute, nil
	}); got != 1 || err != nil {
		t.Errorf("the next one: %d %v", got, err)
	}
}

func TestKeysDiffer(t *testing.T) {
	seen := map[key][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"a", "b", ""}, {"1:a"}, {"a1:b"}} {
		k := keyOf(parts...)
		if other, ok := seen[k]; ok {
			t.Errorf("%q and %q have the same key", parts, other)
		}
		seen[k] = parts
	}
}
