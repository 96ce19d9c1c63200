package stats

import (
	"context"
	"maps"
	"sync"
	"time"
)

// patience is how long a request waits for everything that it wants to have measured.
const patience = 3 * time.Second

// measurer takes measurements beside the requests that want them, one at a time of each thing, and
// remembers the last result. A measurement of what does not answer cannot be ended: nothing waits
// for it, and no second one begins. It is safe for concurrent use.
type measurer[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]*measurement[V]
}

// measurement is what is known of one thing. The measurer's lock guards it.
type measurement[V any] struct {
	value    V
	measured bool
	// began is when the last measurement began, took how long it took, and done is closed when it
	// ends. stale says that a better value is wanted, however young the last one is.
	began time.Time
	took  time.Duration
	done  chan struct{}
	stale bool
	// busy is true while a measurement is under way; cancel asks it to end. gone says that the
	// thing is forgotten at its end.
	busy, gone bool
	cancel     context.CancelFunc
}

// wanted is a measurement that a request wants.
type wanted[K comparable, V any] struct {
	from *measurer[K, V]
	of   *measurement[V]
	// done is closed when the measurement that this request waits for ends; nil if it waits for none.
	done <-chan struct{}
}

// want begins to measure a thing, unless the last measurement began less than valid ago or has not
// ended. measure returns the value; an error leaves the last value as it was.
func (m *measurer[K, V]) want(
	key K, valid time.Duration, measure func(context.Context) (V, error),
) wanted[K, V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[K]*measurement[V]{}
	}
	of := m.known[key]
	if of == nil {
		of = &measurement[V]{}
		m.known[key] = of
	}
	of.gone = false
	w := wanted[K, V]{from: m, of: of}
	if of.busy && time.Since(of.began) < patience {
		w.done = of.done
	}
	if of.busy || time.Since(of.began) < valid && !of.stale {
		return w
	}
	of.stale = false
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	of.began, of.done, of.busy, of.cancel, w.done = time.Now(), done, true, cancel, done
	go func() {
		defer close(done)
		defer cancel()
		value, err := measure(ctx)
		m.ended(key, value, err)
	}()
	return w
}

// ended records the result of a measurement.
func (m *measurer[K, V]) ended(key K, value V, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.known[key]
	of.busy, of.took = false, time.Since(of.began)
	if of.gone {
		delete(m.known, key)
	}
	if err == nil {
		of.value, of.measured = value, true
	}
}

// renew makes things be measured anew, if they are old for how long their measurement takes: by
// effort times that time.
func (m *measurer[K, V]) renew(which func(K) bool, effort int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, of := range m.known {
		if !of.busy && time.Since(of.began) >= time.Duration(effort)*of.took && which(key) {
			of.stale = true
		}
	}
}

// update changes the last value of a thing while it is measured.
func (m *measurer[K, V]) update(key K, change func(V) V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.known[key]
	of.value, of.measured = change(of.value), true
}

// value returns the last value, and whether there is one. It waits until ctx ends for a measurement
// that has just begun.
func (w wanted[K, V]) value(ctx context.Context) (V, bool) {
	if w.done != nil {
		select {
		case <-w.done:
		case <-ctx.Done():
		}
	}
	w.from.mu.Lock()
	defer w.from.mu.Unlock()
	return w.of.value, w.of.measured
}

// keep drops what is known of all things but these. It cancels the measurements under way of the
// others, and drops each of them at its end: as long as one hangs, no second one begins.
func (m *measurer[K, V]) keep(stays func(K) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.known, func(key K, of *measurement[V]) bool {
		if stays(key) {
			return false
		}
		if of.busy {
			of.gone = true
			of.cancel()
		}
		return !of.busy
	})
}
