package stats

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/retry"
)

const (
	// countSeats is how many directories are counted at a time.
	countSeats = 4
	// countEffort is the effort of counting: what a pod has takes at most a twentieth of a core,
	// however many directories and files that is.
	countEffort = 20
	// countBurst is for how long a pod's counts may work before the pod has to wait.
	countBurst = 10 * time.Second
	// countTurn is for how long a count works before others have their turn.
	countTurn = time.Second
	// countSilence is after how long a count that does not go on loses its seat: its disk may never
	// answer, and the other pods' counts need the seat.
	countSilence = time.Minute
)

// budget limits what counting takes of the machine. A count works in turns; of each pod, one count
// has its turn at a time. It is safe for concurrent use. Make it with newBudget.
type budget struct {
	seats chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*account
}

// account is what a pod's counts have taken.
type account struct {
	// turn has a place for the count of the pod that works, or waits to work next. That count has
	// paid to itself.
	turn chan struct{}
	// paid is when the pod has waited long enough for all that its counts have taken.
	paid time.Time
}

func newBudget() *budget {
	return &budget{seats: make(chan struct{}, countSeats), pods: map[types.UID]*account{}}
}

// turn is a count's turn to work. Only the count's goroutine uses it.
type turn struct {
	budget *budget
	of     *account
	// has says that the count has its turn, which began at began.
	has   bool
	began time.Time
	// leave gives the seat back, once; silence does it for a count that does not go on.
	leave   func()
	silence *time.Timer
}

// spend calls work when it is the turn of one of the pod's counts. The count calls next now and
// then.
func (b *budget) spend(ctx context.Context, pod types.UID, work func(*turn) error) error {
	b.mu.Lock()
	of := b.pods[pod]
	if of == nil {
		of = &account{turn: make(chan struct{}, 1)}
		b.pods[pod] = of
	}
	b.mu.Unlock()
	t := &turn{budget: b, of: of}
	if err := t.take(ctx); err != nil {
		return err
	}
	defer t.end()
	return work(t)
}

// take waits until the pod has its turn, and in it this count.
func (t *turn) take(ctx context.Context) error {
	select {
	case t.of.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if due := t.of.paid.Add(-countEffort * countBurst); !retry.Sleep(ctx, max(0, time.Until(due))) {
		<-t.of.turn
		return ctx.Err()
	}
	select {
	case t.budget.seats <- struct{}{}:
	case <-ctx.Done():
		<-t.of.turn
		return ctx.Err()
	}
	t.has, t.began = true, time.Now()
	t.leave = sync.OnceFunc(func() { <-t.budget.seats })
	t.silence = time.AfterFunc(countSilence, t.leave)
	return nil
}

// next gives others their turn if this one has taken long, and waits for the count's next turn.
// After an error the count is to end.
func (t *turn) next(ctx context.Context) error {
	if ctx.Err() != nil || time.Since(t.began) < countTurn {
		return ctx.Err()
	}
	t.end()
	return t.take(ctx)
}

// end ends the turn, if the count has it.
func (t *turn) end() {
	if !t.has {
		return
	}
	t.has = false
	t.silence.Stop()
	t.leave()
	if t.of.paid.Before(t.began) {
		t.of.paid = t.began
	}
	// a disk that did not answer for days took nothing of the machine
	t.of.paid = t.of.paid.Add(countEffort * min(time.Since(t.began), countSilence))
	<-t.of.turn
}

// keep forgets what the counts of all pods but these have taken.
func (b *budget) keep(pods map[types.UID]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for pod := range b.pods {
		if !pods[pod] {
			delete(b.pods, pod)
		}
	}
}
