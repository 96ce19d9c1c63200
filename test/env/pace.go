package env

import "time"

const (
	// pollInterval is the shortest pause between two checks of something outside this process.
	pollInterval = 10 * time.Millisecond
	// pollLimit is the longest pause after a quick check, and checkLimit after a slow one.
	pollLimit  = 150 * time.Millisecond
	checkLimit = time.Second
)

// Pace says when a waiting test checks its condition again. Each check costs an answer of the agent
// or a new process, and so slows down what the test waits for. A Pace belongs to one goroutine.
type Pace struct {
	// waiting is when the wait began, and checking when the current check began.
	waiting, checking time.Time
}

// NewPace returns the pace of a wait that begins now, with its first check.
func NewPace() *Pace {
	now := time.Now()
	return &Pace{waiting: now, checking: now}
}

// Pause returns the pause between the check that has just ended and the next check. The pause is a
// tenth of the wait so far, and at least twice as long as the check, within the limits above.
func (p *Pace) Pause() time.Duration {
	now := time.Now()
	waited, checked := now.Sub(p.waiting), now.Sub(p.checking)
	pause := max(min(max(waited/10, pollInterval), pollLimit), min(2*checked, checkLimit))
	p.checking = now.Add(pause)
	return pause
}
