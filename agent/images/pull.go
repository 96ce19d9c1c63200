package images

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The events' reasons, as a kubelet writes them.
const (
	eventPulling       = "Pulling"
	eventPulled        = "Pulled"
	eventFailed        = "Failed"
	eventBackOff       = "BackOff"
	eventInspectFailed = "InspectFailed"
)

// pull is one image's way from the queue to the runtime's answer. Everything in it is guarded by the manager's lock.
type pull struct {
	name    string // full
	spec    *runtimeapi.ImageSpec
	sandbox *runtimeapi.PodSandboxConfig
	state   State
	number  uint64
	queued  time.Time
	started time.Time
	waiters map[wantKey]Request
	stop    context.CancelFunc // while it runs
	dropped bool               // nobody waits any more
}

// abandon ends a pull that nobody waits for. The lock is held.
func (p *pull) abandon() {
	p.dropped = true
	if p.stop != nil {
		p.stop()
	}
}

// priority is that of the most important pod that waits.
func (p *pull) priority() int32 {
	highest := int32(-1 << 31)
	for _, req := range p.waiters {
		priority := int32(0)
		if req.Pod.Spec.Priority != nil {
			priority = *req.Pod.Spec.Priority
		}
		highest = max(highest, priority)
	}
	return highest
}

// join makes the container wait for the image's pull, queueing one where there is none; joined says that it did not wait before. The lock
// is held.
func (m *Manager) join(req Request, name string) (p *pull, joined bool) {
	p = m.pulls[name]
	if p == nil {
		m.order++
		p = &pull{
			name: name, spec: specOf(req, ""), sandbox: req.Sandbox,
			state: Queued, number: m.order, queued: time.Now(), waiters: make(map[wantKey]Request),
		}
		m.pulls[name] = p
	}
	key := wantKey{req.Pod.UID, req.Container}
	_, waited := p.waiters[key]
	p.waiters[key] = req
	return p, !waited
}

// leave withdraws a container that has its image from the image's pull. One that nobody waits for any more is dropped from the queue; one under
// way goes on, because the image may have been seen a moment before the runtime is done with it. The lock is held.
func (m *Manager) leave(req Request, name string) {
	p := m.pulls[name]
	if p == nil {
		return
	}
	delete(p.waiters, wantKey{req.Pod.UID, req.Container})
	if len(p.waiters) == 0 && p.state == Queued {
		delete(m.pulls, name)
	}
}

// dispatch starts queued pulls while there are places.
func (m *Manager) dispatch() {
	for {
		m.mu.Lock()
		p := m.next()
		if p == nil {
			m.mu.Unlock()
			return
		}
		ctx, cancel := context.WithTimeout(m.run, m.cfg.PullTimeout)
		p.state, p.started, p.stop = Pulling, time.Now(), cancel
		waiters := p.requests()
		m.pullers.Go(func() { m.pull(ctx, p) })
		m.mu.Unlock()
		for _, req := range waiters {
			m.deps.Events(req.Pod, req.Container, v1.EventTypeNormal, eventPulling, pullingMessage(req.Image))
		}
	}
}

// next returns the queued pull to start now, or nil: the most important pod's first, then from the registry with the fewest under way, then
// the oldest. The lock is held.
func (m *Manager) next() *pull {
	if m.run == nil || m.run.Err() != nil {
		return nil
	}
	running, perRegistry := 0, map[string]int{}
	for _, p := range m.pulls {
		if p.state == Pulling {
			running++
			perRegistry[registryOf(p.name)]++
		}
	}
	if m.cfg.MaxParallelPulls > 0 && running >= m.cfg.MaxParallelPulls {
		return nil
	}
	var best *pull
	for _, p := range m.pulls {
		if p.state == Queued && (best == nil || before(p, best, perRegistry)) {
			best = p
		}
	}
	return best
}

// before says whether a is to be pulled before b.
func before(a, b *pull, perRegistry map[string]int) bool {
	if pa, pb := a.priority(), b.priority(); pa != pb {
		return pa > pb
	}
	if ra, rb := perRegistry[registryOf(a.name)], perRegistry[registryOf(b.name)]; ra != rb {
		return ra < rb
	}
	return a.number < b.number
}

// requests returns who waits for the pull. The lock is held.
func (p *pull) requests() []Request {
	out := make([]Request, 0, len(p.waiters))
	for _, req := range p.waiters {
		out = append(out, req)
	}
	return out
}

// pull pulls one image. Credentials will come in here: a list to try in turn, of which there is none yet.
func (m *Manager) pull(ctx context.Context, p *pull) {
	defer p.stop()
	stall := time.AfterFunc(m.cfg.StallTimeout, func() { m.stalled(p) })
	defer stall.Stop()
	ref, err := m.deps.Runtime.PullImage(ctx, p.spec, nil, p.sandbox)
	took := time.Since(p.started)
	size := uint64(0)
	if err == nil {
		if image, err := m.deps.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}); err == nil {
			size = image.GetSize()
		}
		m.pulled(p, ref, size, took)
	} else {
		m.notPulled(ctx, p, err)
	}
	m.dispatch()
}

// stalled takes its place from a pull that takes very long, so that others are not held up by it.
func (m *Manager) stalled(p *pull) {
	m.mu.Lock()
	stalled := p.state == Pulling && m.pulls[p.name] == p
	if stalled {
		p.state = Stalled
	}
	m.mu.Unlock()
	if stalled {
		m.deps.Logger.Warn("The pull of an image takes very long; others go on beside it", "image", p.name, "since", p.started)
		m.dispatch()
	}
}

// finish takes an ended pull off the list, and returns who waited for it. The lock is held.
func (m *Manager) finish(p *pull) []Request {
	if m.pulls[p.name] == p {
		delete(m.pulls, p.name)
	}
	return p.requests()
}

// pulled notes a pull that succeeded, tells and wakes those who waited, and wakes those who hold off from the image.
func (m *Manager) pulled(p *pull, ref string, size uint64, took time.Duration) {
	m.mu.Lock()
	m.arrivals++
	waiters := m.finish(p)
	wake := wakes{}
	for _, req := range waiters {
		w := m.wantOf(req, p.name)
		w.pulled, w.reported = ref, true
		delete(m.backoffs, backoffKey{req.Pod.UID, p.name})
		wake.add(req.Pod.UID)
	}
	for key := range m.backoffs {
		if key.name == p.name {
			wake.add(key.pod)
		}
	}
	m.mu.Unlock()
	whole := time.Since(p.queued)
	m.deps.Logger.Info("Pulled an image", "image", p.name, "took", took, "size", size)
	for _, req := range waiters {
		m.deps.Events(req.Pod, req.Container, v1.EventTypeNormal, eventPulled,
			fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
				req.Image, took.Truncate(time.Millisecond), whole.Truncate(time.Millisecond), size))
	}
	wake.call(m.deps.Wake)
}

// notPulled notes a pull that failed, and tells and wakes those who waited. One that was ended because nobody waits any more, or because
// the manager ends, is not a failure.
func (m *Manager) notPulled(ctx context.Context, p *pull, err error) {
	m.mu.Lock()
	waiters := m.finish(p)
	if p.dropped || m.run == nil || m.run.Err() != nil {
		m.mu.Unlock()
		return
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("the pull did not end within %v: %w", m.cfg.PullTimeout, err)
	}
	now := time.Now()
	wake := wakes{}
	for _, req := range waiters {
		reason, text := reasonOf(req.Image, err)
		if wake.add(req.Pod.UID) {
			m.failed(backoffKey{req.Pod.UID, p.name}, now, reason, text)
		}
		m.wantOf(req, p.name).told = ""
	}
	m.mu.Unlock()
	m.deps.Logger.Warn("Could not pull an image", "image", p.name, "err", err)
	for _, req := range waiters {
		reason, _ := reasonOf(req.Image, err)
		m.deps.Events(req.Pod, req.Container, v1.EventTypeWarning, eventFailed, fmt.Sprintf("Failed to pull image %q: %v", req.Image, err))
		m.deps.Events(req.Pod, req.Container, v1.EventTypeWarning, eventFailed, "Error: "+reason)
	}
	wake.call(m.deps.Wake)
}

// reasonOf returns a failed pull's reason and message. The CRI has two reasons that a runtime puts before its message.
func reasonOf(image string, err error) (reason, message string) {
	text := err.Error()
	if rest, ok := strings.CutPrefix(text, ReasonRegistry); ok {
		return ReasonRegistry, fmt.Sprintf("image pull failed for %s because the registry is unavailable%s", image, rest)
	}
	if rest, ok := strings.CutPrefix(text, ReasonSignature); ok {
		return ReasonSignature, fmt.Sprintf("image pull failed for %s because the signature validation failed%s", image, rest)
	}
	return ReasonPull, text
}

func pullingMessage(image string) string { return fmt.Sprintf("Pulling image %q", image) }
