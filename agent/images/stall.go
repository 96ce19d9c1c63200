package images

import (
	"context"
	"time"

	"github.com/berthd/berth/cri"
)

const (
	// samples is how often a pull is checked within the stall timeout. longestSample limits the
	// time between two checks.
	samples       = 8
	longestSample = 15 * time.Second
	// lookTimeout limits one check.
	lookTimeout = 5 * time.Second
)

// watch checks a running pull from time to time. A pull without progress first stops counting for
// the limit; after the stall timeout it is ended. If the runtime does not report progress, the pull
// only stops counting for the limit.
func (m *Manager) watch(ctx context.Context, p *pull) {
	tick := time.NewTicker(min(m.cfg.StallTimeout/samples, longestSample))
	defer tick.Stop()
	blind := true // no check has reported progress yet
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

// progressOf asks the runtime for the pull's progress.
func (m *Manager) progressOf(ctx context.Context, p *pull) (cri.PullProgress, error) {
	if m.deps.Pulls == nil {
		return cri.PullProgress{}, errNoProgress
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return m.deps.Pulls.PullProgress(ctx, p.name, p.started)
}

// moved starts the measurement again, for another attempt.
func (m *Manager) moved(p *pull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.meter.moved = time.Now()
}

// stalled marks a pull that takes very long, so that it does not count for the limit and other
// pulls can start.
func (m *Manager) stalled(p *pull) {
	m.mu.Lock()
	stalled := p.state == Pulling && m.pulls[p.pullKey] == p
	if stalled {
		p.state = Stalled
	}
	m.mu.Unlock()
	if stalled {
		m.deps.Logger.Warn("The pull of an image takes very long; others go on beside it", "image", p.name,
			"since", p.started)
		m.dispatch()
	}
}
