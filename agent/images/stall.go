package images

import (
	"context"
	"time"

	"github.com/berthd/berth/cri"
)

const (
	// samples is how often a pull is looked at within the stall timeout; longestSample bounds the time between two looks.
	samples       = 8
	longestSample = 15 * time.Second
	// lookTimeout bounds one look.
	lookTimeout = 5 * time.Second
)

// watch looks at a pull from time to time while it runs. One that stands still for the stall timeout is given up, and before that lets others have its place; where
// the runtime cannot say how far it is, it only gives up its place.
func (m *Manager) watch(ctx context.Context, p *pull) {
	tick := time.NewTicker(min(m.cfg.StallTimeout/samples, longestSample))
	defer tick.Stop()
	blind := true // no look has told anything yet
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		seen, err := m.progressOf(ctx, p)
		m.mu.Lock()
		if err == nil {
			blind = false
			p.meter.see(seen, now)
		}
		still, at := p.meter.still(now, m.cfg.StallTimeout), p.meter.last
		rested := p.resting
		p.resting = !blind && p.meter.still(now, m.cfg.StallTimeout/samples)
		rests := p.resting && !rested
		m.mu.Unlock()
		if rests {
			m.dispatch()
		}
		switch {
		case !still || err != nil && !blind:
		case blind:
			m.stalled(p)
			return
		default:
			p.stop(&stallError{timeout: m.cfg.StallTimeout, at: at})
			return
		}
	}
}

// progressOf asks the runtime how far the pull is.
func (m *Manager) progressOf(ctx context.Context, p *pull) (cri.PullProgress, error) {
	if m.deps.Progress == nil {
		return cri.PullProgress{}, errNoProgress
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return m.deps.Progress(ctx, p.name, p.started)
}

// moved begins the pull's measuring anew, for another attempt.
func (m *Manager) moved(p *pull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.meter.moved = time.Now()
}

// stalled takes its place from a pull that takes very long, so that others are not held up by it.
func (m *Manager) stalled(p *pull) {
	m.mu.Lock()
	stalled := p.state == Pulling && m.pulls[p.pullKey] == p
	if stalled {
		p.state = Stalled
	}
	m.mu.Unlock()
	if stalled {
		m.deps.Logger.Warn("The pull of an image takes very long; others go on beside it", "image", p.name, "since", p.started)
		m.dispatch()
	}
}
