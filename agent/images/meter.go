package images

import (
	"fmt"
	"time"

	"github.com/berthd/berth/cri"
)

// meter tells whether a pull makes progress.
type meter struct {
	last  cri.PullProgress
	moved time.Time // when data came last
}

// see records a pull's progress. Unpacking always counts as progress.
func (m *meter) see(p cri.PullProgress, now time.Time) {
	if p != m.last || p.Unpacking {
		m.last, m.moved = p, now
	}
}

// still reports whether there was no progress for the timeout.
func (m *meter) still(now time.Time, timeout time.Duration) bool { return now.Sub(m.moved) >= timeout }

// stallError is the cause of ending a pull that made no progress.
type stallError struct {
	timeout time.Duration
	at      cri.PullProgress
}

// Error says how far the pull was.
func (e *stallError) Error() string {
	if e.at.Total == 0 {
		return fmt.Sprintf("the pull stalled: the registry sent nothing for %v", e.timeout)
	}
	return fmt.Sprintf("the pull stalled: the registry sent nothing for %v, after %s of %s", e.timeout, size(e.at.Done),
		size(e.at.Total))
}
