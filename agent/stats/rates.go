package stats

import (
	"maps"
	"time"
)

const (
	nodeKey, podsKey, agentKey = "/node", "/pods", "/agent"
	// rateWindow is the least time over which a rate is computed, once a thing is known: what is asked for more often has the last rate.
	rateWindow = 5 * time.Second
	// firstWindow is that for a rate of which there is but the short look of [firstRate].
	firstWindow = time.Second
)

// rates compute the use of cpu from readings of the time used so far.
type rates map[string]*rate

type rate struct {
	at    time.Time
	used  time.Duration
	cores *uint64 // billionths of a core
	// first says that the rate is of the short window of a first look.
	first bool
}

// of takes a reading and returns the rate in billionths of a core, nil while there is none.
func (r rates) of(key string, at time.Time, used time.Duration) *uint64 {
	last := r[key]
	if last == nil || used < last.used { // counted anew
		r[key] = &rate{at: at, used: used}
		return nil
	}
	passed, window := at.Sub(last.at), time.Duration(0)
	switch {
	case last.first:
		window = firstWindow
	case last.cores != nil:
		window = rateWindow
	}
	if passed <= window {
		return last.cores
	}
	cores := uint64(float64(used-last.used) / float64(passed) * float64(time.Second))
	r[key] = &rate{at: at, used: used, cores: &cores, first: last.cores == nil}
	return &cores
}

// complete reports whether there is an earlier reading of each.
func (r rates) complete(keys map[string]bool) bool {
	for key := range keys {
		if r[key] == nil {
			return false
		}
	}
	return true
}

// keep drops all others.
func (r rates) keep(keys map[string]bool) {
	maps.DeleteFunc(r, func(key string, _ *rate) bool { return !keys[key] })
}
