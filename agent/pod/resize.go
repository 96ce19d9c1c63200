package pod

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/resize"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// deferredRetry is the time after which a resize without room is tried again, if nobody has woken
// the pod before.
const deferredRetry = time.Minute

// resizer changes what running pods are allocated (KEP-1287).
type resizer struct {
	deps       *Deps
	ephemerals *ephemerals
}

// beginResize begins a resize if the pod was admitted and its wanted resources have changed. before
// is the pod as it was wanted until now.
func beginResize(p *steps.Sync, before *v1.Pod) {
	rec := p.Record
	if rec.Resize == nil && rec.Admitted && changed(p, before) && !resize.Same(before, rec.Pod) {
		rec.Resize = resize.Begin(before, nil)
	}
}

// changed reports whether the wanted version of the pod differs from the version before.
func changed(p *steps.Sync, before *v1.Pod) bool {
	return before != nil && before != p.Record.Pod && !pods.RuntimeOnly(before) && !pods.RuntimeOnly(p.Pod)
}

// warnMissing records a warning for the pod if a change of its resources needs a feature that the
// node does not declare, as a kubelet does. The change is made all the same, as far as possible.
func (r *resizer) warnMissing(p *steps.Sync, before *v1.Pod) {
	now := p.Record.Pod
	if !changed(p, before) || len(before.Spec.InitContainers) != len(now.Spec.InitContainers) ||
		resize.Same(before, now) {
		return
	}
	declared := r.deps.Node.Declared()
	if declared == nil {
		return
	}
	missing, err := declared.MissingForChange(before, now)
	if err != nil {
		p.Log.Error("features that a change needs not found out", "err", err)
	}
	if len(missing) > 0 {
		r.deps.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedNodeDeclaredFeaturesCheck", admit.Unavailable(missing))
	}
}

// withAllocated gives the sync the pod with its allocated resources. The record has the pod with
// the wanted resources.
func withAllocated(p *steps.Sync) {
	if p.Record.Resize != nil && !pods.RuntimeOnly(p.Pod) {
		p.Pod = p.Record.Resize.Allocated.On(p.Pod)
	}
}

// allocate decides whether a pod may have the wanted resources, and records the decision before
// anybody acts on it.
func (r *resizer) allocate(_ context.Context, s *podSync) (steps.Outcome, error) {
	room, uid := r.deps.Node.Room, s.Pod.UID
	state := s.Record.Resize
	if state == nil {
		room.SetAllocated(uid, nil)
		return steps.Outcome{}, nil
	}
	running := steps.Instances(&s.Observed)
	state.Note(s.Pod, running)
	var out steps.Outcome
	if wanted := r.ephemerals.with(s.Record.Pod); resize.Same(wanted, s.Pod) {
		if state.Pending = nil; !state.InProgress {
			s.Record.Resize = nil // the wanted resources are the allocated ones again
		}
	} else {
		retryAt, err := r.claim(s.Sync, wanted)
		if err != nil {
			return steps.Outcome{}, err
		}
		out.RetryAt = retryAt
	}
	if state = s.Record.Resize; state == nil {
		room.SetAllocated(uid, nil)
		return out, nil
	}
	if state.InProgress {
		s.Limits = resize.Wide(state.Before(s.Pod, running), s.Pod)
	}
	room.SetAllocated(uid, s.Pod)
	return out, nil
}

// claim allocates the wanted resources if there is room. Else claim records the reason.
func (r *resizer) claim(p *steps.Sync, wanted *v1.Pod) (retryAt time.Time, err error) {
	events, state := r.deps.Events, p.Record.Resize
	pending, err := r.deps.Node.Room.Resize(wanted, p.Pod, func() error {
		next := *state
		next.Allocated, next.InProgress, next.Error, next.Pending = resize.Of(wanted), true, "", nil
		p.Record.Resize = &next
		err := p.Save()
		if err != nil {
			p.Record.Resize = state
		}
		return err
	})
	switch {
	case err != nil:
		return time.Time{}, fmt.Errorf("writing down what the pod was allocated: %w", err)
	case pending == nil:
		p.Pod = wanted
		events.Pod(wanted, "", v1.EventTypeNormal, "ResizeStarted", resize.Message("Pod resize started", wanted, ""))
		r.deps.Node.Room.Freed() // the pod may have given up some resources
		return time.Time{}, nil
	}
	if before := state.Pending; before == nil || before.Reason != pending.Reason || before.Message != pending.Message {
		message := resize.Message("Pod resize "+pending.Reason, wanted, pending.Message)
		events.Pod(p.Pod, "", v1.EventTypeWarning, "Resize"+pending.Reason, message)
	}
	state.Pending = pending
	if pending.Reason != v1.PodReasonDeferred {
		return time.Time{}, nil
	}
	return time.Now().Add(deferredRetry), nil
}

// step is the step that gives running containers new resources.
func (r *resizer) step() steps.Resize {
	d := r.deps
	return steps.Resize{
		Runtime: d.Runtime, Cgroups: d.Runtime.Cgroups, Usage: d.Runtime.Cgroups.MemoryUsage, Events: d.Events,
		Updated: d.Runtime.Observer.Stale, Done: d.Node.Resized,
	}
}

// restartsFor returns the ids of the containers that must restart to get their new resources.
func restartsFor(p *steps.Sync) map[string]bool {
	s := p.Record.Resize
	if s == nil || !s.InProgress {
		return nil
	}
	out := map[string]bool{}
	for _, u := range s.Updates(p.Pod, steps.Instances(&p.Observed)) {
		if u.Restart {
			out[u.ID] = true
		}
	}
	return out
}

// resizeStatus returns the part of the pod's status about its resize.
func resizeStatus(p *steps.Sync) *status.Resize {
	s := p.Record.Resize
	if s == nil {
		return nil
	}
	out := &status.Resize{
		InProgress: s.InProgress,
		Error:      s.Error,
		Containers: s.Actuated,
		Pod:        s.Before(p.Pod, steps.Instances(&p.Observed)),
	}
	if s.Pending != nil {
		out.Pending = status.Reason{Reason: s.Pending.Reason, Message: s.Pending.Message}
	}
	return out
}
