package steps

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/volumes"
)

// Volumes has the pod's volumes.
type Volumes struct {
	Manager *volumes.Manager
	Events  EventSink
	// HostIPs returns the node's addresses.
	HostIPs func() []string
}

// EventSink takes a pod's events; container may be empty.
type EventSink interface {
	Pod(pod *v1.Pod, container, kind, reason, message string)
}

// Name is "volumes".
func (Volumes) Name() string { return "volumes" }

// Ensure brings up every volume and keeps its content up to date. While a pod has no container yet, a missing volume holds it back; afterwards,
// content that cannot be had any more only leaves the old content in place.
func (v Volumes) Ensure(ctx context.Context, p *Pass) (Outcome, error) {
	mounts, err := v.Manager.Ensure(ctx, p.Pod, volumes.Dynamic{HostIPs: v.HostIPs(), PodIPs: p.PodIPs})
	p.Volumes = mounts
	if err == nil {
		return Outcome{}, nil
	}
	for _, f := range volumes.Failures(err) {
		v.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedMount", f.Error())
		if _, up := mounts[f.Volume]; !up {
			return Outcome{}, err
		}
	}
	if errors.Is(err, context.Canceled) {
		return Outcome{}, err
	}
	return Outcome{Waiting: err.Error()}, nil
}

// Remove unmounts the pod's volumes and deletes its directory.
func (v Volumes) Remove(ctx context.Context, p *Pass) (Outcome, error) {
	return Outcome{}, v.Manager.Remove(ctx, p.Pod.UID)
}
