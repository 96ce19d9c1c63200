package steps

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/admit"
	"github.com/berthd/berth/agent/checkpoint"
)

// Admit asks once whether the pod may run, and checkpoints the answer before anything of the pod exists.
type Admit struct {
	// Others returns the admitted pods that have not ended, without the one asked about.
	Others func(*v1.Pod) []*v1.Pod
	// MaxPods is how many pods the node takes; 0 means any number.
	MaxPods int
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
		a.Lock.Lock()
		defer a.Lock.Unlock()
		if r := admit.Check(admit.Input{Pod: p.Pod, Others: a.Others(p.Pod), MaxPods: a.MaxPods}); r != nil {
			p.Record.Rejected = &checkpoint.Rejected{Reason: r.Reason, Message: r.Message}
		} else {
			p.Record.Admitted = true
		}
		if err := a.Save(p.Record); err != nil {
			p.Record.Admitted, p.Record.Rejected = false, nil
			return Outcome{}, err
		}
	}
	if r := p.Record.Rejected; r != nil {
		return Outcome{}, &Rejection{Reason: r.Reason, Message: r.Message}
	}
	return Outcome{}, nil
}

// Remove has nothing to give back: a verdict is final.
func (Admit) Remove(context.Context, *Pass) (Outcome, error) { return Outcome{}, nil }
