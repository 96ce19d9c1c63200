package events

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The limits on events about one object are those of client-go's event correlator
// (tools/record/events_cache.go): 25 at once and one more every 5 minutes, separately for normal
// events and warnings. Repeats are counted without a limit. What listeners hear of repeats has a
// limit of its own, so that a probe that fails each second does not hide what else happens to its
// pod.
const (
	spamBurst  = 25
	spamRefill = 5 * time.Minute
)

// maxBuckets is how many objects have a bucket before the buckets of quiet objects are dropped.
const maxBuckets = 1024

// object is the key of a limit.
type object struct {
	uid       types.UID
	namespace string
	name      string
	kind      string // v1.EventTypeNormal or v1.EventTypeWarning
}

func objectOf(ref v1.ObjectReference, kind string) object {
	return object{ref.UID, ref.Namespace, ref.Name, kind}
}

// bucket is a token bucket: left tokens at the time at.
type bucket struct {
	left float64
	at   time.Time
}

// level returns how many tokens the bucket has now.
func (b bucket) level(now time.Time) float64 {
	return min(spamBurst, b.left+max(now.Sub(b.at), 0).Seconds()/spamRefill.Seconds())
}

// limiter has the buckets of all objects.
type limiter map[object]bucket

// allow takes one of the object's tokens and reports whether there was one.
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

// tidy drops the buckets that are full again. If that is not enough, it drops all.
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
