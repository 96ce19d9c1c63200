package images

import "time"

// pace lets so many pulls begin per second on average, and a burst of them at once. The zero value lets all begin.
type pace struct {
	perSecond float64
	burst     int

	left float64   // pulls that may begin at once, at the time at
	at   time.Time // zero before the first
}

// take lets a pull begin, or says how long from now the next may.
func (p *pace) take(now time.Time) (wait time.Duration) {
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
