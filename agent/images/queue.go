package images

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/internal/pods"
)

// pullKey identifies a pull: the image's full name, and the credentials or the service account of
// the pods that wait for it; see [ask].
type pullKey struct {
	name, set string
}

// pull is the pull of one image, from the queue to the runtime's answer. The manager's lock guards
// all that can change in it.
type pull struct {
	pullKey
	pod     *v1.Pod // the first that waits
	image   string  // as that pod writes it
	own     []credentials.Credential
	spec    *runtimeapi.ImageSpec
	sandbox *runtimeapi.PodSandboxConfig
	number  uint64
	queued  time.Time

	state   State
	started time.Time
	tried   string // identifies the credentials that it is tried with; see [ask]
	meter   meter
	resting bool // no data came for a while: it does not count for the limit
	waiters map[wantKey]ask
	stop    context.CancelCauseFunc // while it runs
	dropped bool                    // no pod waits any more
}

// abandon ends a pull for which no pod waits. The lock is held.
func (p *pull) abandon() {
	p.dropped = true
	if p.stop != nil {
		p.stop(context.Canceled)
	}
}

// priority is the priority of the most important pod that waits.
func (p *pull) priority() int32 {
	highest := int32(-1 << 31)
	for _, a := range p.waiters {
		highest = max(highest, pods.Priority(a.Pod))
	}
	return highest
}

// join makes the container wait for the image's pull, and queues a pull if there is none. joined
// says that the container did not wait before. The lock is held.
func (m *Manager) join(a ask) (p *pull, joined bool) {
	p = m.pulls[a.pull()]
	if p == nil {
		m.order++
		p = &pull{
			pullKey: a.pull(), pod: a.Pod, image: a.Image, own: a.own, spec: specOf(a.Request, ""), sandbox: a.Sandbox,
			state: Queued, number: m.order, queued: time.Now(), waiters: make(map[wantKey]ask),
		}
		m.pulls[p.pullKey] = p
	}
	_, waited := p.waiters[a.key()]
	if !waited {
		m.leaveOthers(a) // it may have waited with other credentials
	}
	p.waiters[a.key()] = a
	return p, !waited
}

// leaveOthers removes a container from all pulls but the one that it needs now. The lock is held.
func (m *Manager) leaveOthers(a ask) {
	for key, p := range m.pulls {
		if _, waits := p.waiters[a.key()]; waits && key != a.pull() {
			delete(p.waiters, a.key())
			m.dropUnwanted(p)
		}
	}
}

// dropUnwanted ends a pull if no container waits for it. The lock is held.
func (m *Manager) dropUnwanted(p *pull) {
	if len(p.waiters) == 0 {
		delete(m.pulls, p.pullKey)
		p.abandon()
	}
}

// leave removes a container that has its image from the image's pulls. A queued pull for which no
// container waits any more is dropped. A running one goes on, because the image may be visible a
// moment before the runtime has finished it. The lock is held.
func (m *Manager) leave(a ask) {
	for key, p := range m.pulls {
		if _, waits := p.waiters[a.key()]; !waits {
			continue
		}
		delete(p.waiters, a.key())
		if len(p.waiters) == 0 && p.state == Queued {
			delete(m.pulls, key)
		}
	}
}

// dispatch starts queued pulls while the limits allow it.
func (m *Manager) dispatch() {
	for m.startNext() {
	}
}

// startNext starts the queued pull to start now, and reports whether there was one.
func (m *Manager) startNext() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.next()
	if p == nil {
		return false
	}
	bounded, cancel := context.WithTimeout(m.run, m.cfg.PullTimeout)
	ctx, stop := context.WithCancelCause(bounded)
	p.state, p.started, p.stop = Pulling, time.Now(), stop
	p.meter.moved = p.started
	m.pullers.Go(func() {
		defer cancel()
		m.pull(ctx, p)
	})
	for _, a := range p.waiters {
		m.reportPulling(a)
	}
	return true
}

// next returns the queued pull to start now, or nil. The most important pod's pull comes first,
// then one from the registry with the fewest running pulls, then the oldest. An image is pulled
// with one set of credentials at a time: the next pull then finds all parts of the image on the
// node. The lock is held.
func (m *Manager) next() *pull {
	if m.run == nil || m.run.Err() != nil {
		return nil
	}
	running, perRegistry, busy := 0, map[string]int{}, map[string]bool{}
	for _, p := range m.pulls {
		if p.state == Pulling {
			perRegistry[registryOf(p.name)]++
		}
		// with a limit of one, a stalled pull counts, too
		if p.state == Pulling && (!p.resting || m.cfg.MaxParallelPulls == 1) {
			running++
		}
		busy[p.name] = busy[p.name] || p.state != Queued
	}
	if m.cfg.MaxParallelPulls > 0 && running >= m.cfg.MaxParallelPulls {
		return nil
	}
	var best *pull
	for _, p := range m.pulls {
		if p.state == Queued && !busy[p.name] && (best == nil || before(p, best, perRegistry)) {
			best = p
		}
	}
	if best == nil {
		return nil
	}
	if wait := m.rate.take(time.Now()); wait > 0 {
		m.later(wait)
		return nil
	}
	return best
}

// later dispatches again after the wait. The lock is held.
func (m *Manager) later(wait time.Duration) {
	if m.paced != nil {
		m.paced.Stop()
	}
	m.paced = time.AfterFunc(wait, m.dispatch)
}

// before reports whether a is to be pulled before b.
func before(a, b *pull, perRegistry map[string]int) bool {
	if pa, pb := a.priority(), b.priority(); pa != pb {
		return pa > pb
	}
	if ra, rb := perRegistry[registryOf(a.name)], perRegistry[registryOf(b.name)]; ra != rb {
		return ra < rb
	}
	return a.number < b.number
}
