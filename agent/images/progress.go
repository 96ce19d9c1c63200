package images

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// State is where a pull is.
type State string

// The states of a pull.
const (
	Queued  State = "Queued"
	Pulling State = "Pulling"
	Stalled State = "Stalled" // still pulling, for longer than the stall timeout
	BackOff State = "BackOff" // failed; it is tried again
)

// Pull is an image that is not there yet.
type Pull struct {
	// Image is the image's full name.
	Image string `json:"image"`
	State State  `json:"state"`
	// Since is when the state began.
	Since time.Time `json:"since"`
	// RetryAt and Error are a failed pull's, of the pod that tries again first.
	RetryAt time.Time `json:"retryAt,omitzero"`
	Error   string    `json:"error,omitempty"`
	// Pods are the UIDs of the pods that wait, sorted.
	Pods []types.UID `json:"pods"`
}

// Progress returns the images that are being waited for, by name.
func (m *Manager) Progress() []Pull {
	m.mu.Lock()
	defer m.mu.Unlock()
	byName := map[string]*Pull{}
	for name, p := range m.pulls {
		out := &Pull{Image: name, State: p.state, Since: p.queued}
		switch p.state {
		case Pulling:
			out.Since = p.started
		case Stalled:
			out.Since = p.started.Add(m.cfg.StallTimeout)
		}
		for key := range p.waiters {
			out.Pods = append(out.Pods, key.pod)
		}
		byName[name] = out
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
	list := make([]Pull, 0, len(byName))
	for _, p := range byName {
		slices.Sort(p.Pods)
		p.Pods = slices.Compact(p.Pods)
		list = append(list, *p)
	}
	slices.SortFunc(list, func(a, b Pull) int { return cmp.Compare(a.Image, b.Image) })
	return list
}

// wakes is a set of pods to wake once the lock is given back.
type wakes map[types.UID]bool

// add adds the pod, and says whether it was not in the set.
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
