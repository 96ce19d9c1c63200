// Package loglimit decides which failures of something that is tried again and again are worth a
// line in the log.
//
// Purpose: a full disk must not be filled by its own errors.
//
// Truth owned: which failure of one thing was logged last. Concurrency: a [Limiter] belongs to one
// goroutine.
package loglimit

import "time"

const (
	// repeatAfter is the time after which a lasting failure is logged again.
	repeatAfter = 5 * time.Minute
	// gap is the least time between two failures in the log: failures whose text changes each time
	// must not fill the log.
	gap = 10 * time.Second
)

// Limiter limits the log lines about the failures of one thing. The zero value has seen no failure.
type Limiter struct {
	text   string
	logged time.Time
}

// Allow reports whether a failure is to be logged now: a failure with a new text, or a failure that
// was not logged for five minutes.
func (l *Limiter) Allow(err error, now time.Time) bool {
	since := now.Sub(l.logged)
	if !l.logged.IsZero() && (since < gap || since < repeatAfter && err.Error() == l.text) {
		return false
	}
	l.text, l.logged = err.Error(), now
	return true
}

// Recovered reports, once, that the last logged failure is over.
func (l *Limiter) Recovered() bool {
	was := l.text != ""
	l.text = ""
	return was
}
