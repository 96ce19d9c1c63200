package env

import "time"

const (
	// pollInterval is the shortest pause between two checks of something outside this process.
	pollInterval = 10 * time.Millisecond
	// pollLimit is the longest one, if a check itself is quick. patience is the share of a wait that
	// a pause may add to the wait.
	pollLimit = 150 * time.Millisecond
	patience  = 10
	// checkLimit is the longest pause after a check that took long.
	checkLimit = time.Second
)

// Pace says when a waiting test checks its condition again. A check costs an agent's answer or a
// process, on the machine that has to bring the condition about. A Pace belongs to one goroutine.
type Pace struct {
	began, paused time.Time
}

// NewPace returns the pace of a wait that begins now, with its first check.
func NewPace() *Pace {
	now := time.Now()
	return &Pace{began: now, paused: now}
}

// Pause returns the pause between the check that has just ended and the next one. It grows with the
// wait so far, and is at least twice the time that the check took, within limits.
func (p *Pace) Pause() time.Duration {
	now := time.Now()
	pause := max(
		min(max(now.Sub(p.began)/patience, pollInterval), pollLimit),
		min(2*now.Sub(p.paused), checkLimit),
	)
	p.paused = now.Add(pause)
	return pause
}
