package steps

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/admit"
	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/fields"
	"github.com/berthd/berth/agent/source"
)

// Admit asks once whether the pod may run, and checkpoints the answer before anything of the pod exists.
type Admit struct {
	// Others returns the admitted pods that have not ended, without the one asked about.
	Others func(*v1.Pod) []*v1.Pod
	// Allocatable is what pods can have of the node; nil means any amount.
	Allocatable v1.ResourceList
	// Node is what the rules know of the node.
	Node   func() admit.Node
	Events EventSink
	// Lock makes admissions one after the other, so that two pods cannot both be given the same port.
	Lock interface {
		Lock()
		Unlock()
	}
	// Save writes the pod's checkpoint.
	Save func(*checkpoint.Record) error
}

// Name is "admit".
func (Admit) Name() string { return "admit" }

// Ensure returns a [Rejection] for a pod that was or is refused.
func (a Admit) Ensure(_ context.Context, p *Pass) (Outcome, error) {
	if p.Record.Rejected == nil && !p.Record.Admitted {
		var also []admit.Rejection
		a.Lock.Lock()
		defer a.Lock.Unlock()
		if r := admit.Check(admit.Input{Pod: p.Pod, Bound: source.Bound(p.Pod), Others: a.Others(p.Pod), Allocatable: a.Allocatable, Node: a.Node()}); r != nil {
			p.Record.Rejected = &checkpoint.Rejected{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
			also = r.Also
		} else {
			p.Record.Admitted = true
		}
		if err := a.Save(p.Record); err != nil {
			p.Record.Admitted, p.Record.Rejected = false, nil
			return Outcome{}, err
		}
		if p.Record.Admitted {
			a.warn(p.Pod)
		}
		for _, r := range also { // the first is told by whoever ends the pod
			a.Events.Pod(p.Pod, "", v1.EventTypeWarning, r.Reason, r.Message)
		}
	}
	if r := p.Record.Rejected; r != nil {
		return Outcome{}, &Rejection{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
	}
	return Outcome{}, nil
}

// reasonWithoutEffect is the reason of the event about a pod's fields that are accepted and not acted on.
const reasonWithoutEffect = "FieldWithoutEffect"

// warn tells the pod which of its fields have no effect here.
func (a Admit) warn(pod *v1.Pod) {
	if found := fields.Warnings(pod, source.Bound(pod)); len(found) > 0 {
		a.Events.Pod(pod, "", v1.EventTypeWarning, reasonWithoutEffect, fields.Join(found, 1024))
	}
}

// Remove has nothing to give back: a verdict is final.
func (Admit) Remove(context.Context, *Pass) (Outcome, error) { return Outcome{}, nil }
