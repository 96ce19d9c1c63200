package agent

import "time"

const (
	// troubleAgain is after how long an error that lasts is logged again.
	troubleAgain = 5 * time.Minute
	// troubleGap is the least time between two errors of one pod in the log: passes that fail in ever other words must not fill it.
	troubleGap = 10 * time.Second
)

// trouble decides which of a pod's failures are worth a line in the log: passes are tried again every few seconds, and a full disk would fill itself.
// The zero value has seen none.
type trouble struct {
	text string
	told time.Time
}

// worth reports whether a failure is to be logged: one that says something new, or has not been told for long.
func (t *trouble) worth(err error, now time.Time) bool {
	since := now.Sub(t.told)
	if !t.told.IsZero() && (since < troubleGap || since < troubleAgain && err.Error() == t.text) {
		return false
	}
	t.text, t.told = err.Error(), now
	return true
}

// over reports whether the failure that was logged last is over, once; a new one is told again, but not before the gap.
func (t *trouble) over() bool {
	was := t.text != ""
	t.text = ""
	return was
}
