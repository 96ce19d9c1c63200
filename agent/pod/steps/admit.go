package steps

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/fields"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// leavingRetry is how often a pod asks again that waits for other pods to be gone. Usually it is
// woken before.
const leavingRetry = time.Minute

// Admit asks once whether the pod may run. It checkpoints the answer before anything of the pod
// exists.
type Admit struct {
	// Room decides. A decision is recorded before the next pod is decided on.
	Room interface {
		Admit(ctx context.Context, pod *v1.Pod, record func(refused *admit.Rejection) error) (room.Decision, error)
	}
	// Allocation gives the pod's containers their devices before the room decides.
	Allocation Allocation
	Events     EventSink
}

// Allocation gives the containers of pods what the node has in single pieces.
type Allocation interface {
	// Wants reports whether the pod wants such pieces, Lost whether it has some of which nobody knows
	// whether they are there still, and Answered whether Allocate has answered.
	Wants(pod *v1.Pod) bool
	Lost(pod *v1.Pod) bool
	Answered(uid types.UID) bool
	// Allocate asks for the pieces. The room learns the answer.
	Allocate(ctx context.Context, pod *v1.Pod, running func(container string) bool) error
	// Decided says how the room has decided.
	Decided(pod *v1.Pod, admitted, waits bool)
}

// allocateTask is the key of an allocation under way.
const allocateTask = "allocate"

// Name is "admit".
func (Admit) Name() string { return "admit" }

// Ensure returns a [Rejection] for a pod that is refused now or was refused before. A refusal is
// for good, and so is an admission, but for devices that are lost. If only pods that are ending
// stand in the pod's way, the pod waits until they are gone.
func (a Admit) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	if p.Record.Admitted && a.again(p) {
		p.Record.Admitted = false
	}
	if p.Record.Rejected == nil && !p.Record.Admitted {
		if out := a.allocate(p); out.Halt {
			return out, nil
		}
		if out, err := a.decide(ctx, p); err != nil || out.Halt {
			return out, err
		}
	}
	if r := p.Record.Rejected; r != nil {
		return Outcome{}, &Rejection{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
	}
	return Outcome{}, nil
}

// again reports whether an admitted pod has to be asked again, as by a kubelet: the node started
// anew, nothing of the pod is left, and the plugin of its devices has not come back. A pod without
// an API server waits for the plugin instead.
func (a Admit) again(p *Sync) bool {
	return pods.FromAPI(p.Pod) && len(p.Observed.Containers) == 0 && a.Allocation.Lost(p.Pod)
}

// allocate asks for the devices of the pod's containers, beside the worker: a device plugin may
// take long.
func (a Admit) allocate(p *Sync) Outcome {
	if a.Allocation.Answered(p.Pod.UID) || !a.Allocation.Wants(p.Pod) {
		return Outcome{}
	}
	runs, pod := map[string]bool{}, p.Pod
	for _, c := range p.Observed.Running() {
		runs[c.Name()] = true
	}
	p.start(allocateTask, func(ctx context.Context) error {
		return a.Allocation.Allocate(ctx, pod, func(name string) bool { return runs[name] })
	})
	p.Problem = status.Reason{Reason: a.Name(), Message: "waiting for the devices of the containers"}
	return Outcome{Halt: true, Waiting: p.Problem.Message}
}

// decide lets the room decide, and records the decision.
func (a Admit) decide(ctx context.Context, p *Sync) (Outcome, error) {
	decision, err := a.Room.Admit(ctx, p.Pod, func(refused *admit.Rejection) error {
		p.Record.Admitted = refused == nil
		if refused != nil {
			p.Record.Rejected = &checkpoint.Rejected{
				Reason:  refused.Reason,
				Message: refused.Message,
				Detail:  refused.Detail,
			}
		}
		err := p.Save()
		if err != nil {
			p.Record.Admitted, p.Record.Rejected = false, nil
		}
		return err
	})
	a.Allocation.Decided(p.Pod, p.Record.Admitted, err != nil || decision.Waits != nil)
	switch {
	case err != nil:
		return Outcome{}, err
	case decision.Waits != nil:
		p.Problem = status.Reason{Reason: a.Name(), Message: waiting(decision.Waits)}
		return Outcome{Halt: true, Waiting: p.Problem.Message, RetryAt: time.Now().Add(leavingRetry)}, nil
	case decision.Refused == nil:
		a.warn(p.Pod)
		return Outcome{}, nil
	}
	for _, r := range decision.Refused.Also { // the pod's end records the first
		a.Events.Pod(p.Pod, "", v1.EventTypeWarning, r.Reason, r.Message)
	}
	return Outcome{}, nil
}

// waiting says what a pod waits for.
func waiting(r *admit.Rejection) string {
	if r.Later {
		return r.Detail
	}
	return "waiting until pods that are being removed are gone: " + rejectionOf(r).Error()
}

func rejectionOf(r *admit.Rejection) *Rejection {
	return &Rejection{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
}

// reasonWithoutEffect is the reason of the event about a pod's fields that are accepted and not
// acted on.
const reasonWithoutEffect = "FieldWithoutEffect"

// warn records which of the pod's fields have no effect here.
func (a Admit) warn(pod *v1.Pod) {
	if found := fields.Warnings(pod, pods.FromAPI(pod)); len(found) > 0 {
		a.Events.Pod(pod, "", v1.EventTypeWarning, reasonWithoutEffect, fields.Join(found, 1024))
	}
}

// Remove has nothing to give back: a decision is final.
func (Admit) Remove(context.Context, *Sync) (Outcome, error) { return Outcome{}, nil }
