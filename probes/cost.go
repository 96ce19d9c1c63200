package probes

import (
	"fmt"
	"time"
)

const (
	// costRuns is the number of runs in the mean cost of an exec probe. costSure is the number of
	// runs after which the mean is reliable.
	costRuns, costSure = 10, 5
	// costParts is how many times a command's mean time must fit into its period. A command that
	// runs half of the time costs more than its result is worth.
	costParts = 2
)

// cost measures how much of its period an exec probe takes. The zero value has no runs.
type cost struct {
	runs int
	mean time.Duration
	told bool
}

// note adds a run: took is its time in all, and its command was busy for a part of that. It returns
// a message for an event, or "" if there is nothing to report. Each message is returned once.
func (c *cost) note(kind Kind, took, busy, period time.Duration) string {
	c.runs++
	c.mean += (busy - c.mean) / time.Duration(min(c.runs, costRuns))
	waited := took - busy
	text := ""
	switch {
	case c.told:
	case took > period && waited > busy:
		text = fmt.Sprintf("%s probe took %s, longer than its period of %s, and waited %s of that for its turn among "+
			"the node's exec probes: raise periodSeconds",
			kind, rounded(took), period, rounded(waited))
	case took > period:
		text = fmt.Sprintf("%s probe command took %s, longer than its period of %s: raise periodSeconds", kind,
			rounded(took), period)
	case c.runs >= costSure && c.mean > period/costParts:
		text = fmt.Sprintf(
			"%s probe command takes %s on average, more than half of its period of %s: raise periodSeconds", kind,
			rounded(c.mean), period)
	}
	c.told = c.told || text != ""
	return text
}

// rounded rounds a duration for a message.
func rounded(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
