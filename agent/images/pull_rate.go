package images

import "time"

// rate limits how many pulls begin per second on average, and how many at once. The zero value has
// no limit.
type rate struct {
	perSecond float64
	burst     int

	left float64   // pulls that may begin at once, at the time at
	at   time.Time // zero before the first pull
}

// take lets a pull begin, or returns how long to wait before the next pull may begin.
func (p *rate) take(now time.Time) (wait time.Duration) {
	if p.perSecond <= 0 {
		return 0
	}
	most := float64(max(p.burst, 1))
	if p.at.IsZero() {
		p.left = most
	} else {
		p.left = min(p.left+now.Sub(p.at).Seconds()*p.perSecond, most)
	}
	p.at = now
	if p.left < 1 {
		return max(time.Duration((1-p.left)/p.perSecond*float64(time.Second)), time.Millisecond)
	}
	p.left--
	return 0
}
