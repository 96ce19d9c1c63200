package store

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// gate keeps requests away from a store that ends: etcd does not survive one that reads its file
// after it was closed. A connection's end does the same for requests of other processes.
type gate struct {
	mu     sync.RWMutex
	closed bool
	// streams are the store's ends of streams of watches, which read for what they send. ending ends
	// them all.
	streams sync.WaitGroup
	ending  context.Context
	end     context.CancelFunc
}

func newGate() gate {
	ending, end := context.WithCancel(context.Background())
	return gate{ending: ending, end: end}
}

// close lets nothing in any more, waits for the requests under way, and ends the streams.
func (g *gate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.end()
	g.streams.Wait()
}

// stream counts a stream, unless the store has ended. Its end calls g.streams.Done.
func (g *gate) stream() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	g.streams.Add(1)
	return true
}

// through calls a function of the store unless the store has ended.
func through[Q, A any](ctx context.Context, g *gate, call func(context.Context, *Q) (*A, error), q *Q) (*A, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil, rpctypes.ErrGRPCStopped
	}
	return call(ctx, q)
}
