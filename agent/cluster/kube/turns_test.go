package kube

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"
)

func came(u *Turn) bool {
	select {
	case <-u.come:
		return true
	default:
		return false
	}
}

func TestTurnsAreFirstComeFirstServed(t *testing.T) {
	turns := NewTurns()
	var queue []*Turn
	for range 4 * turnsOfPod {
		queue = append(queue, turns.Queue("pod"))
	}
	for i := range queue {
		for j, u := range queue[i:] {
			if came(u) != (j < turnsOfPod) {
				t.Errorf("after %d turns, %d: %t", i, i+j, came(u))
			}
		}
		if other := turns.Queue("other"); !came(other) {
			t.Error("one pod waits for another")
		} else {
			other.End()
		}
		queue[i].End()
		queue[i].End() // has no effect
	}
	if n := turns.Pods(); n != 0 {
		t.Errorf("%d pods are left", n)
	}
}

// A request that several pods share has the turn of the pod that has one first, and no other.
func TestSharedTurns(t *testing.T) {
	turns := NewTurns()
	full := func(pod types.UID) (out []*Turn) {
		for range turnsOfPod {
			out = append(out, turns.Queue(pod))
		}
		return out
	}
	a, b := full("a"), full("b")
	shared, next := turns.Queue("a"), turns.Queue("a")
	shared.Join("a") // it waits there
	shared.Join("b")
	given := turns.Queue("b", "a")
	given.End() // gave up its wait
	if came(shared) || came(next) {
		t.Error("a turn that is not free")
	}
	b[0].End()
	if !came(shared) || came(next) {
		t.Error("the turn of a pod that joined is not taken")
	}
	a[0].End()
	if !came(next) {
		t.Error("the shared request still waits for the first pod")
	}
	joined := turns.Queue("a")
	joined.Join("c")
	if !came(joined) {
		t.Error("a free turn is not taken")
	}
	for _, u := range append(append(a, b...), shared, next, joined) {
		u.End()
	}
	joined.Join("d")
	if n := turns.Pods(); n != 0 {
		t.Errorf("%d pods are left", n)
	}
}

func TestWaitForATurnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := NewTurns()
		var out []*Turn
		for range turnsOfPod {
			out = append(out, turns.Queue("pod"))
		}
		waiting, last := turns.Queue("pod"), turns.Queue("pod")
		ctx, cancel := context.WithCancelCause(t.Context())
		err := make(chan error)
		go func() { err <- waiting.Wait(ctx) }()
		synctest.Wait()
		gone := errors.New("the pod is gone")
		cancel(gone)
		if err := <-err; !errors.Is(err, gone) {
			t.Error(err)
		}
		out[0].End()
		if err := last.Wait(t.Context()); err != nil || came(waiting) {
			t.Error("a request that is gone got the turn", err)
		}
		if err := last.Wait(ctx); !errors.Is(err, gone) { // the turn came, and the caller has gone
			t.Error(err)
		}
		for _, u := range out {
			u.End()
		}
		if n := turns.Pods(); n != 0 {
			t.Errorf("%d pods are left", n)
		}
	})
}
