package images

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is the state of a pull.
type State string

// The states of a pull.
const (
	Queued    State = "Queued"
	Pulling   State = "Pulling"
	Unpacking State = "Unpacking" // all data has come
	Stalled   State = "Stalled"   // see the package's documentation
	BackOff   State = "BackOff"   // failed; it is tried again
)

// errNoProgress is the error of a runtime that does not report progress.
var errNoProgress = errors.New("the runtime does not say how far a pull is")

// Pull is an image for which pods wait.
type Pull struct {
	// Image is the image's full name.
	Image string `json:"image"`
	State State  `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// Done and Total are compressed bytes. Total is 0 if it is unknown.
	Done  int64 `json:"done,omitempty"`
	Total int64 `json:"total,omitempty"`
	// RetryAt and Error are those of a failed pull, of the pod that tries again first.
	RetryAt time.Time `json:"retryAt,omitzero"`
	Error   string    `json:"error,omitempty"`
	// Pods are the UIDs of the pods that wait, sorted.
	Pods []types.UID `json:"pods"`
}

// Progress returns the images for which pods wait, by name. It asks the runtime for the progress of
// the running pulls.
func (m *Manager) Progress(ctx context.Context) []Pull {
	byName, running := m.waitedFor()
	for _, p := range running {
		out := byName[p.name]
		if seen, err := m.progressOf(ctx, p); err == nil {
			out.Done, out.Total = seen.Done, seen.Total
			if seen.Unpacking {
				out.State = Unpacking
			}
		}
	}
	list := make([]Pull, 0, len(byName))
	for _, p := range byName {
		slices.Sort(p.Pods)
		p.Pods = slices.Compact(p.Pods)
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Pull) int { return cmp.Compare(a.Image, b.Image) })
	return list
}

// waitedFor returns the images for which pods wait, and the running pulls. If an image is pulled
// several times, with different credentials, its progress is that of the running pull.
func (m *Manager) waitedFor() (byName map[string]*Pull, running []*pull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byName = map[string]*Pull{}
	for _, p := range m.pulls {
		out := byName[p.name]
		if out == nil {
			out = &Pull{Image: p.name, State: Queued, Since: p.queued}
			byName[p.name] = out
		}
		for key := range p.waiters {
			out.Pods = append(out.Pods, key.pod)
		}
		switch {
		case p.state == Pulling && p.resting:
			out.State, out.Since = Stalled, p.meter.moved
		case p.state == Pulling:
			out.State, out.Since = Pulling, p.started
		case p.state == Stalled:
			out.State, out.Since = Stalled, p.started.Add(m.cfg.StallTimeout)
		default:
			if out.State == Queued && p.queued.Before(out.Since) {
				out.Since = p.queued
			}
			continue
		}
		running = append(running, p)
	}
	for key, b := range m.backoffs {
		out := byName[key.name]
		if out == nil {
			out = &Pull{Image: key.name, State: BackOff}
			byName[key.name] = out
		}
		out.Pods = append(out.Pods, key.pod)
		if until := b.until(); out.State == BackOff && (out.RetryAt.IsZero() || until.Before(out.RetryAt)) {
			out.RetryAt, out.Error, out.Since = until, b.text, b.failedAt
		}
	}
	return byName, running
}

// wakes is a set of pods to wake after the lock is released.
type wakes map[types.UID]bool

// add adds the pod, and reports whether it was not in the set.
func (w wakes) add(uid types.UID) bool {
	if w[uid] {
		return false
	}
	w[uid] = true
	return true
}

func (w wakes) call(wake func(types.UID)) {
	for uid := range w {
		wake(uid)
	}
}
