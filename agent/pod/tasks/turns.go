package tasks

import (
	"context"
	"sync"
)

// Turns lets one user at a time work on each key, for instance on a volume that pods share. The
// zero value is ready. It keeps nothing about keys without users.
type Turns[K comparable] struct {
	mu    sync.Mutex
	turns map[K]*turn
}

// turn is the turn of one key.
type turn struct {
	taken chan struct{} // holds one token while a user has the turn
	users int           // the user that has the turn, and those that wait
}

// Take waits for the key's turn, or for ctx to end. release gives the turn back.
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
