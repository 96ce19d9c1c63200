package stats

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// busy counts a directory of a pod that takes very long, until ctx ends. It adds to worked for how
// long it has worked, and to at while it works.
func busy(ctx context.Context, b *budget, pod types.UID, worked, at *atomic.Int64) {
	_ = b.spend(ctx, pod, func(t *turn) error {
		for {
			at.Add(1)
			time.Sleep(100 * time.Millisecond)
			worked.Add(int64(100 * time.Millisecond))
			at.Add(-1)
			if err := t.next(ctx); err != nil {
				return err
			}
		}
	})
}

// A pod takes a twentieth of a core, however many directories it has.
func TestBudgetOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
		defer cancel()
		var worked, at atomic.Int64
		for range 50 {
			go busy(ctx, b, "hog", &worked, &at)
		}
		for range 1000 {
			time.Sleep(33 * time.Millisecond)
			if at.Load() > 1 {
				t.Fatalf("%d directories of the pod are counted at a time", at.Load())
			}
		}
		<-ctx.Done()
		time.Sleep(countTurn) // the last one sees it
		synctest.Wait()
		took := time.Duration(worked.Load())
		if fair := 10*time.Hour/countEffort + countBurst; took > fair+2*countTurn || took < fair-2*countTurn {
			t.Errorf("the counts took %s of 10 hours, want %s", took, fair)
		}
		if b.keep(nil); len(b.pods) != 0 || len(b.seats) != 0 {
			t.Errorf("of a pod that is gone remains %v, and of the seats are taken %d", b.pods, len(b.seats))
		}
	})
}

// Many pods that all have much to count take few seats, and others have their turn soon.
func TestBudgetOfAllPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const hogs = 100
		var worked, at atomic.Int64
		for i := range hogs {
			go busy(ctx, b, types.UID(fmt.Sprint("hog", i)), &worked, &at)
		}
		began := time.Now()
		for i := range 100 {
			time.Sleep(33 * time.Millisecond)
			if at.Load() > countSeats {
				t.Fatalf("%d directories are counted at a time", at.Load())
			}
			if err := b.spend(ctx, types.UID(fmt.Sprint("small", i)), func(*turn) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if took, most := time.Since(began)/100, (hogs/countSeats+1)*(countTurn+100*time.Millisecond); took > most {
			t.Errorf("a small directory waits %s, want at most %s", took, most)
		}
		cancel()
		time.Sleep(countTurn)
		synctest.Wait()
	})
}

// A count that does not go on takes the seat only for a while, and no second one of the pod begins.
func TestBudgetOfAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget()
		hang := make(chan struct{})
		var begun atomic.Int32
		for i := range 2 * countSeats {
			go func() {
				_ = b.spend(t.Context(), types.UID(fmt.Sprint("hung", i%countSeats)), func(*turn) error {
					begun.Add(1)
					<-hang
					return nil
				})
			}()
		}
		synctest.Wait()
		began := time.Now()
		for range 3 {
			if err := b.spend(t.Context(), "well", func(*turn) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != countSilence || begun.Load() != countSeats {
			t.Errorf("it waited %s, and %d counts have begun", took, begun.Load())
		}
		time.Sleep(24 * time.Hour)
		close(hang)
		time.Sleep(countEffort * countSilence)
		synctest.Wait()
		if len(b.seats) != 0 || begun.Load() != 2*countSeats {
			t.Errorf("%d seats are taken, and %d counts have begun", len(b.seats), begun.Load())
		}
	})
}
