// Package retry says how long to wait before something that failed is tried again, and waits.
//
// Purpose: one back-off, with jitter, for all that is tried again.
//
// Truth owned: none. Concurrency: a [Backoff] is a value; its methods are safe for concurrent use.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is how long to wait after failures in a row.
type Backoff struct {
	// First is the wait after the first failure. The wait doubles with each further failure, up to
	// Most.
	First, Most time.Duration
}

// maxShift bounds the shift of First: a longer shift could overflow, and Most is reached long
// before.
const maxShift = 16

// Delay returns how long to wait after so many failures in a row (at least 1), without jitter.
func (b Backoff) Delay(failures int) time.Duration {
	shift := max(failures-1, 0)
	if shift >= maxShift || b.First<<shift > b.Most {
		return b.Most
	}
	return b.First << shift
}

// Jittered is [Backoff.Delay] and up to a fifth more, so that those who failed together do not try
// again together.
func (b Backoff) Jittered(failures int) time.Duration { return Jitter(b.Delay(failures)) }

// Jitter returns d and up to a fifth more.
func Jitter(d time.Duration) time.Duration { return d + rand.N(d/5+1) }

// Wait waits for [Backoff.Delay] and reports whether ctx lasted.
func (b Backoff) Wait(ctx context.Context, failures int) bool { return Sleep(ctx, b.Delay(failures)) }

// Sleep waits for d and reports whether ctx lasted.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
