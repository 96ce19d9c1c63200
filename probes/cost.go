package probes

import (
	"fmt"
	"time"
)

const (
	// costRuns is about how many runs the mean of an exec probe's cost looks back, and costSure how many there must be for it to be believed.
	costRuns, costSure = 10, 5
	// costParts is into how many parts of its period a command's mean time must fit: one that runs half of the time costs more than it tells.
	costParts = 2
)

// cost follows how much of its period an exec probe takes. The zero value has seen no run.
type cost struct {
	runs int
	mean time.Duration
	told bool
}

// note takes a run that took so long in all, of which its command was busy, and returns what is to be said of it; empty for nothing. Something is said
// once.
func (c *cost) note(kind Kind, took, busy, period time.Duration) string {
	c.runs++
	c.mean += (busy - c.mean) / time.Duration(min(c.runs, costRuns))
	waited := took - busy
	text := ""
	switch {
	case c.told:
	case took > period && waited > busy:
		text = fmt.Sprintf("%s probe took %s, longer than its period of %s, and waited %s of that for its turn among the node's exec probes: raise periodSeconds",
			kind, rounded(took), period, rounded(waited))
	case took > period:
		text = fmt.Sprintf("%s probe command took %s, longer than its period of %s: raise periodSeconds", kind, rounded(took), period)
	case c.runs >= costSure && c.mean > period/costParts:
		text = fmt.Sprintf("%s probe command takes %s on average, more than half of its period of %s: raise periodSeconds", kind, rounded(c.mean), period)
	}
	c.told = c.told || text != ""
	return text
}

// rounded makes a duration fit for a message.
func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
