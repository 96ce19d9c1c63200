package kube

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// turnsOfPod is how many of a pod's requests are out at once. Four hide the time that an answer
// takes, and are a small part of the client's burst of 100: the requests of other pods, and the
// node's own, wait behind four of each pod, and not behind thousands of one.
const turnsOfPod = 4

// Turns lets few requests of each pod be out at once. Whoever may create a pod decides how many
// objects and tokens it names, but all of the node's requests share one client and its rate. The
// others of the pod's requests wait, in the order in which they came. Make it with [NewTurns].
//
// Turns is safe for concurrent use, and calls nobody. It knows a pod only while that pod has a
// request that is out or waits.
type Turns struct {
	mu    sync.Mutex
	lanes map[types.UID]*lane
}

// lane has the turns of one pod. While a turn is free, nobody waits.
type lane struct {
	pod     types.UID
	out     int
	waiting list.List // of *Turn, the longest wait first
}

// Turn is the turn of one request.
type Turn struct {
	turns *Turns
	// come is closed once it is the request's turn.
	come chan struct{}
	// The mutex of turns guards the rest. places are where the request waits, by lane.
	places map[*lane]*list.Element
	// of is the lane whose turn the request has; nil before. over says that the turn has ended.
	of   *lane
	over bool
}

// NewTurns returns the turns of pods without requests.
func NewTurns() *Turns { return &Turns{lanes: map[types.UID]*lane{}} }

// Queue lets a request that several pods share wait for the turn of any of them. The caller ends
// the turn with [Turn.End].
func (t *Turns) Queue(pods ...types.UID) *Turn {
	turn := &Turn{turns: t, come: make(chan struct{}), places: map[*lane]*list.Element{}}
	for _, pod := range pods {
		turn.Join(pod)
	}
	return turn
}

// Pods returns how many pods have requests that are out or wait.
func (t *Turns) Pods() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lanes)
}

// Join lets the request wait for the turn of one more pod, too. It has no effect once the request
// has had a turn.
func (u *Turn) Join(pod types.UID) {
	u.turns.mu.Lock()
	defer u.turns.mu.Unlock()
	if u.of != nil || u.over {
		return
	}
	l := u.turns.lanes[pod]
	if l == nil {
		l = &lane{pod: pod}
		u.turns.lanes[pod] = l
	}
	switch {
	case l.out < turnsOfPod:
		u.start(l)
	case u.places[l] == nil:
		u.places[l] = l.waiting.PushBack(u)
	}
}

// Wait waits until it is the request's turn. If ctx ends, Wait ends the turn, and returns an error.
func (u *Turn) Wait(ctx context.Context) error {
	select {
	case <-u.come:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		u.End()
		return fmt.Errorf("waiting for the pod's other requests to the API server: %w", context.Cause(ctx))
	}
	return nil
}

// End ends the turn, or the wait for it. Only the first call has an effect.
func (u *Turn) End() {
	u.turns.mu.Lock()
	defer u.turns.mu.Unlock()
	if u.over {
		return
	}
	u.over = true
	u.leave()
	l := u.of
	if l == nil {
		return
	}
	l.out--
	if first := l.waiting.Front(); first != nil {
		first.Value.(*Turn).start(l) //nolint:forcetypeassert // see lane
	}
	u.turns.forget(l)
}

// start takes a turn of a lane. The caller holds the mutex.
func (u *Turn) start(l *lane) {
	l.out++
	u.of = l
	u.leave()
	close(u.come)
}

// leave ends all waits. The caller holds the mutex.
func (u *Turn) leave() {
	for l, place := range u.places {
		l.waiting.Remove(place)
		u.turns.forget(l)
	}
	u.places = nil
}

// forget forgets a lane that nobody uses. The caller holds the mutex.
func (t *Turns) forget(l *lane) {
	if l.out == 0 && l.waiting.Len() == 0 {
		delete(t.lanes, l.pod)
	}
}
