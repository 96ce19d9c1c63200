package images

import (
	"fmt"
	"time"

	"github.com/berthd/berth/cri"
)

// meter tells a pull that stands still from one that moves.
type meter struct {
	last  cri.PullProgress
	moved time.Time // when something came last
}

// see takes notice of how far the pull is. One that is unpacked does not stand still.
func (m *meter) see(p cri.PullProgress, now time.Time) {
	if p != m.last || p.Unpacking {
		m.last, m.moved = p, now
	}
}

// still says whether nothing came for so long.
func (m *meter) still(now time.Time, timeout time.Duration) bool { return now.Sub(m.moved) >= timeout }

// stallError is why a pull was given up.
type stallError struct {
	timeout time.Duration
	at      cri.PullProgress
}

// Error says how far the pull was.
func (e *stallError) Error() string {
	if e.at.Total == 0 {
		return fmt.Sprintf("the pull stalled: the registry sent nothing for %v", e.timeout)
	}
	return fmt.Sprintf("the pull stalled: the registry sent nothing for %v, after %s of %s", e.timeout, size(e.at.Done), size(e.at.Total))
}
