package steps

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/admit"
	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/fields"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/status"
)

// leavingRetry is how often a pod is asked about again that waits for others to be gone, should nobody have told of that.
const leavingRetry = time.Minute

// Admit asks once whether the pod may run, and checkpoints the answer before anything of the pod exists.
type Admit struct {
	// Others returns the admitted pods that have not ended, without the one asked about: those that stay, and those that are on their way out.
	Others func(*v1.Pod) (stay, leave []*v1.Pod)
	// Waits says whether the pod is to be looked at again when another one has ended.
	Waits func(uid types.UID, waits bool)
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

// Ensure returns a [Rejection] for a pod that was or is refused. A refusal is for good: what only pods have that are leaving is no reason for one, and is
// waited for.
func (a Admit) Ensure(_ context.Context, p *Pass) (Outcome, error) {
	if p.Record.Rejected == nil && !p.Record.Admitted {
		if out, err := a.decide(p); err != nil || out.Halt {
			return out, err
		}
	}
	if r := p.Record.Rejected; r != nil {
		return Outcome{}, &Rejection{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
	}
	return Outcome{}, nil
}

// decide writes the verdict down, unless it has to wait.
func (a Admit) decide(p *Pass) (Outcome, error) {
	a.Lock.Lock()
	defer a.Lock.Unlock()
	a.Waits(p.Pod.UID, true) // from before the look on, so that no end is missed
	stay, leave := a.Others(p.Pod)
	in := admit.Input{Pod: p.Pod, Bound: source.Bound(p.Pod), Others: stay, Allocatable: a.Allocatable, Node: a.Node()}
	refused := admit.Check(in)
	if refused == nil {
		in.Others = slices.Concat(stay, leave)
		if r := admit.Check(in); r != nil {
			p.Problem = status.Reason{Reason: a.Name(), Message: "waiting for pods that are leaving: " + (&Rejection{Reason: r.Reason, Message: r.Message, Detail: r.Detail}).Error()}
			return Outcome{Halt: true, Waiting: p.Problem.Message, RetryAt: time.Now().Add(leavingRetry)}, nil
		}
	}
	a.Waits(p.Pod.UID, false)
	if refused != nil {
		p.Record.Rejected = &checkpoint.Rejected{Reason: refused.Reason, Message: refused.Message, Detail: refused.Detail}
	} else {
		p.Record.Admitted = true
	}
	if err := a.Save(p.Record); err != nil {
		p.Record.Admitted, p.Record.Rejected = false, nil
		return Outcome{}, err
	}
	if refused == nil {
		a.warn(p.Pod)
		return Outcome{}, nil
	}
	for _, r := range refused.Also { // the first is told by whoever ends the pod
		a.Events.Pod(p.Pod, "", v1.EventTypeWarning, r.Reason, r.Message)
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
