package server

import "sync"

// gate counts the requests at work and, once it is shut, lets no more in, so that waiting for them comes to an end. The zero value is open.
type gate struct {
	mu   sync.RWMutex // keeps enter's adding and shut apart
	shut bool
	work sync.WaitGroup
}

// enter lets a request in, which then must leave; it reports false once the gate is shut.
func (g *gate) enter() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.shut {
		return false
	}
	g.work.Add(1)
	return true
}

// leave ends a request that was let in.
func (g *gate) leave() { g.work.Done() }

// close shuts the gate and returns a channel that is closed when all that were let in have left.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	g.shut = true
	g.mu.Unlock()
	left := make(chan struct{})
	go func() {
		g.work.Wait()
		close(left)
	}()
	return left
}
