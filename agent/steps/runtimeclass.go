package steps

import (
	"context"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/berthd/berth/agent/runtimeclass"
)

// reasonAdmission is upstream's reason for a pod that an admission handler fails for.
const reasonAdmission = "UnexpectedAdmissionError"

// RuntimeClass waits for the pod's RuntimeClass and sees that the pod has what it says, once, before the pod is admitted.
type RuntimeClass struct {
	// Get returns a pod's class by name, nil where there is none.
	Get func(pod *v1.Pod, name string) *nodev1.RuntimeClass
	// Given reports whether an API server's admission has given the pod what its class said at that time.
	Given  func(pod *v1.Pod) bool
	Events EventSink
}

// Name is "runtimeclass".
func (RuntimeClass) Name() string { return "runtimeclass" }

// Ensure returns a [Rejection] for a pod that contradicts its class.
func (s RuntimeClass) Ensure(_ context.Context, p *Pass) (Outcome, error) {
	name := runtimeclass.Name(p.Pod)
	if name == "" || p.Record.Admitted || p.Record.Rejected != nil {
		return Outcome{}, nil
	}
	class := s.Get(p.Pod, name)
	if class == nil {
		err := runtimeclass.NotFound(name)
		s.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
		p.Problem.Reason, p.Problem.Message = s.Name(), err.Error()
		return Outcome{Halt: true, Waiting: err.Error()}, nil
	}
	if s.Given(p.Pod) {
		return Outcome{}, nil
	}
	applied, err := runtimeclass.Apply(p.Pod, class)
	switch {
	case err != nil:
		return Outcome{}, &Rejection{Reason: reasonAdmission, Message: err.Error()}
	case applied != p.Pod:
		// The class has just come: what is wanted of the pod is on its way here.
		return Outcome{Halt: true, Waiting: "what RuntimeClass " + name + " says of the pod"}, nil
	}
	return Outcome{}, nil
}

// Remove has nothing to give back.
func (RuntimeClass) Remove(context.Context, *Pass) (Outcome, error) { return Outcome{}, nil }
