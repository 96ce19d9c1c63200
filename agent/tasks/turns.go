package tasks

import (
	"context"
	"sync"
)

// Turns lets one at a time do something about each key, such as a volume that pods share. The zero value is ready. It keeps nothing of keys about which nobody does, or
// waits to do, anything.
type Turns[K comparable] struct {
	mu    sync.Mutex
	turns map[K]*turn
}

// turn is a key's.
type turn struct {
	taken chan struct{} // holds one token while somebody has it
	users int           // who has it, and who waits
}

// Take waits for the key's turn, or for ctx to end. release gives it back.
func (t *Turns[K]) Take(ctx context.Context, key K) (release func(), err error) {
	one := t.join(key)
	select {
	case one.taken <- struct{}{}:
		return func() {
			<-one.taken
			t.leave(key, one)
		}, nil
	case <-ctx.Done():
		t.leave(key, one)
		return nil, context.Cause(ctx)
	}
}

func (t *Turns[K]) join(key K) *turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	one := t.turns[key]
	if one == nil {
		one = &turn{taken: make(chan struct{}, 1)}
		if t.turns == nil {
			t.turns = map[K]*turn{}
		}
		t.turns[key] = one
	}
	one.users++
	return one
}

func (t *Turns[K]) leave(key K, one *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(t.turns, key)
	}
}
