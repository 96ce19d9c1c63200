package server

import "sync"

// inFlight counts the requests in progress. After it was closed, no request may begin, so that
// waiting for the others ends. The zero value is open.
type inFlight struct {
	mu     sync.RWMutex // keeps the adding in enter and the closing apart
	closed bool
	work   sync.WaitGroup
}

// enter begins a request, which must call leave at its end. It returns false after close.
func (g *inFlight) enter() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	g.work.Add(1)
	return true
}

// leave ends a request.
func (g *inFlight) leave() { g.work.Done() }

// close lets no more requests begin. It returns a channel that is closed when all requests have
// left.
func (g *inFlight) close() <-chan struct{} {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	left := make(chan struct{})
	go func() {
		g.work.Wait()
		close(left)
	}()
	return left
}
