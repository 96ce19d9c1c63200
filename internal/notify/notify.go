// Package notify has the notification that never blocks: it says that something changed, not what,
// and not how often.
//
// Purpose: a loop that works from state (level-triggered) needs to know only that it must look
// again.
//
// Truth owned: none. Concurrency: a [Signal] is safe for concurrent use.
package notify

// Signal holds at most one notification. Receive from it to take the notification.
type Signal chan struct{}

// New returns a signal that holds nothing.
func New() Signal { return make(Signal, 1) }

// Notify leaves a notification in the signal, unless the signal holds one already. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}
