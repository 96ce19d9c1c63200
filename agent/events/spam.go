package events

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The limits on new events about one object are those of client-go's event correlator (tools/record/events_cache.go): 25 at once and one more every
// 5 minutes, for normal events and warnings apart. Repeats are counted without limit.
const (
	spamBurst  = 25
	spamRefill = 5 * time.Minute
)

// maxBuckets is how many objects are kept track of before those that have been quiet are let go.
const maxBuckets = 1024

// object is what a limit is kept for.
type object struct {
	uid       types.UID
	namespace string
	name      string
	kind      string // v1.EventTypeNormal or v1.EventTypeWarning
}

// bucket is a token bucket: left tokens at the time at.
type bucket struct {
	left float64
	at   time.Time
}

// level returns how many tokens the bucket holds now.
func (b bucket) level(now time.Time) float64 {
	return min(spamBurst, b.left+max(now.Sub(b.at), 0).Seconds()/spamRefill.Seconds())
}

// limiter has the buckets of all objects.
type limiter map[object]bucket

// allow takes a token of the object's and reports whether there was one.
func (l limiter) allow(o object, now time.Time) bool {
	b, ok := l[o]
	if !ok {
		b = bucket{left: spamBurst, at: now}
	}
	left := b.level(now)
	if left < 1 {
		return false
	}
	if len(l) >= maxBuckets {
		l.tidy(now)
	}
	l[o] = bucket{left: left - 1, at: now}
	return true
}

// tidy lets go of the objects whose buckets are full again, and of all where that is not enough.
func (l limiter) tidy(now time.Time) {
	for o, b := range l {
		if b.level(now) >= spamBurst {
			delete(l, o)
		}
	}
	if len(l) >= maxBuckets {
		clear(l)
	}
}
