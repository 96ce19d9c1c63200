package server

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestGate shuts a gate that many go through at that moment: whoever was let in is waited for, and
// nobody comes after.
func TestGate(t *testing.T) {
	var g inFlight
	var inside atomic.Int64
	var callers sync.WaitGroup
	begin := make(chan struct{})
	for range 8 {
		callers.Go(func() {
			<-begin
			for g.enter() {
				inside.Add(1)
				inside.Add(-1)
				g.leave()
			}
		})
	}
	if !g.enter() {
		t.Fatal("a new inFlight is shut")
	}
	close(begin)
	left := g.close()
	select {
	case <-left:
		t.Error("one is still inside")
	default:
	}
	g.leave()
	<-left
	if n := inside.Load(); n != 0 {
		t.Errorf("%d are inside", n)
	}
	if g.enter() {
		t.Error("a inFlight that is shut let one in")
	}
	callers.Wait()
}
