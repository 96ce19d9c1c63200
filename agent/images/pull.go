package images

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/agent/images/records"
)

// accepted is the credential that a registry accepted.
type accepted struct {
	// own is its index among the pod's own; -1 if it is one of the node's, or none.
	own int
	// node is the node's credential; the zero value if there is none.
	node credentials.Credential
}

// pull pulls one image.
func (m *Manager) pull(ctx context.Context, p *pull) {
	defer m.dispatch()
	defer p.stop(nil)
	m.trying(p)
	if m.deps.Records != nil {
		if err := m.deps.Records.Begin(p.image); err != nil {
			m.notPulled(p,
				failure(fmt.Sprintf("Failed to record image pull intent for container image %q: %v", p.image, err)))
			return
		}
	}
	m.pullers.Go(func() { m.watch(ctx, p) })
	ref, by, failed := m.attempt(ctx, p)
	took := time.Since(p.started)
	if failed != "" {
		if m.deps.Records != nil {
			m.deps.Records.Failed(p.image)
		}
		m.notPulled(p, failed)
		return
	}
	id, bytes := ref, uint64(0)
	if image, err := m.deps.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}); err == nil && image != nil {
		id, bytes = image.GetId(), image.GetSize()
	}
	m.record(p, id, by)
	if m.cfg.Pins.has(p.name) {
		m.pin(ctx, p.name)
	}
	m.pulled(p, ref, bytes, took)
}

// attempt tries the pull with one credential after another until the registry accepts one: first
// the pod's own, then the node's. If there are none, it pulls without credentials. by is the one
// that was accepted.
func (m *Manager) attempt(ctx context.Context, p *pull) (ref string, by accepted, failed failure) {
	given, providers := m.deps.Node.Lookup(ctx, p.pod, repositoryOf(p.name))
	list := append(slices.Clone(p.own), given...)
	try := list
	if len(try) == 0 {
		try = []credentials.Credential{{}}
	}
	var errs []error
	for i, c := range try {
		var auth *runtimeapi.AuthConfig
		if len(list) > 0 {
			auth = c.Auth()
		}
		m.moved(p)
		ref, err := m.deps.Runtime.PullImage(ctx, p.spec, auth, p.sandbox)
		if err == nil {
			if i < len(p.own) {
				return ref, accepted{own: i}, ""
			}
			return ref, accepted{own: -1, node: c}, ""
		}
		if ctx.Err() != nil {
			errs = append(errs, m.whyEnded(ctx, err))
			break
		}
		errs = append(errs, err)
	}
	if providers != nil {
		errs = append(errs, providers)
	}
	return "", accepted{}, failureOf(p.name, list, errs...)
}

// whyEnded returns the reason why a pull was ended.
func (m *Manager) whyEnded(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if stall := (*stallError)(nil); errors.As(cause, &stall) {
		return stall
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("the pull did not end within %v: %w", m.cfg.PullTimeout, err)
	}
	return err
}

// record records who may use the image.
func (m *Manager) record(p *pull, id string, by accepted) {
	if m.deps.Records == nil {
		return
	}
	m.mu.Lock()
	waiters := slices.Collect(maps.Values(p.waiters))
	m.mu.Unlock()
	used := func(own []credentials.Credential) credentials.Credential {
		if by.own < 0 {
			return by.node // all waiting pods have the same service account, if that matters
		}
		// all waiting pods have the same credentials in the same order, from Secrets of their own
		return own[by.own]
	}
	uses := []records.Use{{Image: p.image, Credential: used(p.own)}}
	for _, a := range waiters {
		uses = append(uses, records.Use{Image: a.Image, Credential: used(a.own)})
	}
	if err := m.deps.Records.Pulled(p.image, id, uses); err != nil {
		m.deps.Logger.Warn(
			"Could not note with which credentials an image was pulled; pods that want it have to ask the registry",
			"image", p.name, "err", err)
	}
}

// finish removes an ended pull from the list, and returns who waited for it. The lock is held.
func (m *Manager) finish(p *pull) []ask {
	if m.pulls[p.pullKey] == p {
		delete(m.pulls, p.pullKey)
	}
	return slices.Collect(maps.Values(p.waiters))
}

// pulled handles a pull that succeeded: it records the events, and wakes the pods that waited and
// those in back-off for the image.
func (m *Manager) pulled(p *pull, ref string, bytes uint64, took time.Duration) {
	whole := time.Since(p.queued)
	m.mu.Lock()
	m.arrivals++
	waiters := m.finish(p)
	wake := wakes{}
	for _, a := range waiters {
		w := m.wantOf(a.Request, p.name)
		w.pulled, w.reported = ref, true
		delete(m.backoffs, a.backoff())
		wake.add(a.Pod.UID)
		// before any pod can continue with the image
		m.deps.Events(a.Pod, a.Container, v1.EventTypeNormal, eventPulled,
			fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.",
				a.Image, took.Truncate(time.Millisecond), whole.Truncate(time.Millisecond), bytes))
	}
	for key := range m.backoffs {
		if key.name == p.name {
			wake.add(key.pod)
		}
	}
	m.mu.Unlock()
	m.deps.Logger.Info("Pulled an image", "image", p.name, "took", took, "size", bytes)
	waited := make([]types.UID, len(waiters))
	for i, a := range waiters {
		waited[i] = a.Pod.UID
	}
	m.deps.Pulled(waited, p.queued, bytes)
	wake.call(m.deps.Wake)
}

// notPulled handles a pull that failed: it records the events and wakes the pods that waited. A
// pull that was ended because no pod waits any more, or because the manager ends, is no failure.
func (m *Manager) notPulled(p *pull, failed failure) {
	m.mu.Lock()
	waiters := m.finish(p)
	if p.dropped || m.run == nil || m.run.Err() != nil {
		m.mu.Unlock()
		return
	}
	now := time.Now()
	wake := wakes{}
	for _, a := range waiters {
		if wake.add(a.Pod.UID) {
			m.failed(a, p.tried, now, failed)
		}
		m.wantOf(a.Request, p.name).lastWait = ""
		reason, _ := failed.reasonOf(a.Image)
		m.deps.Events(a.Pod, a.Container, v1.EventTypeWarning, eventFailed,
			fmt.Sprintf("Failed to pull image %q: %s", a.Image, failed))
		m.deps.Events(a.Pod, a.Container, v1.EventTypeWarning, eventFailed, "Error: "+reason)
	}
	m.mu.Unlock()
	m.deps.Logger.Warn("Could not pull an image", "image", p.name, "err", string(failed))
	wake.call(m.deps.Wake)
}
