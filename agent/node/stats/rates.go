package stats

import (
	"maps"
	"time"
)

const (
	nodeKey, podsKey, agentKey = "/node", "/pods", "/agent"
	// rateWindow is the least time over which a rate is computed. A request within that time gets
	// the last rate.
	rateWindow = 5 * time.Second
	// firstWindow takes its place while the rate comes from the two readings of [firstRate].
	firstWindow = time.Second
)

// rates compute the cpu use from readings of the used time.
type rates map[string]*rate

type rate struct {
	at    time.Time
	used  time.Duration
	cores *uint64 // billionths of a core
	// first says that the rate comes from the short time of [firstRate].
	first bool
}

// of takes a reading and returns the rate in billionths of a core; nil while there is no rate.
func (r rates) of(key string, at time.Time, used time.Duration) *uint64 {
	last := r[key]
	if last == nil || used < last.used { // the counter has started again
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

// complete reports whether every key has an earlier reading.
func (r rates) complete(keys map[string]bool) bool {
	for key := range keys {
		if r[key] == nil {
			return false
		}
	}
	return true
}

// keep drops all other keys.
func (r rates) keep(keys map[string]bool) {
	maps.DeleteFunc(r, func(key string, _ *rate) bool { return !keys[key] })
}
