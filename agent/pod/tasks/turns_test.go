package tasks

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns Turns[string]
		release, err := turns.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := turns.Take(t.Context(), "b") // nobody has the turn of b
		if err != nil {
			t.Fatal(err)
		}
		other()
		ctx, cancel := context.WithCancelCause(t.Context())
		gaveUp := make(chan error)
		go func() {
			_, err := turns.Take(ctx, "a")
			gaveUp <- err
		}()
		var inside, served int
		var waiting sync.WaitGroup
		for range 5 {
			waiting.Go(func() {
				release, err := turns.Take(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside > 1 {
					t.Error("two at once")
				}
				inside--
				served++
				release()
			})
		}
		synctest.Wait()
		cause := errors.New("enough")
		cancel(cause)
		if err := <-gaveUp; !errors.Is(err, cause) {
			t.Error(err)
		}
		if served != 0 {
			t.Errorf("%d were served while another had its turn", served)
		}
		release()
		waiting.Wait()
		if served != 5 || len(turns.turns) != 0 {
			t.Errorf("%d were served, %d turns are left", served, len(turns.turns))
		}
	})
}
