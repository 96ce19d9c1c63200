package steps

import (
	"context"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/berthd/berth/agent/pod/runtimeclass"
	"github.com/berthd/berth/internal/pods"
)

// reasonAdmission is upstream's reason for a pod that fails because of an admission handler.
const reasonAdmission = "UnexpectedAdmissionError"

// RuntimeClass waits for the pod's RuntimeClass. It checks once, before the pod is admitted, that
// the pod has what its class says.
type RuntimeClass struct {
	// Get returns a pod's class by name, nil if there is none.
	Get    func(pod *v1.Pod, name string) *nodev1.RuntimeClass
	Events EventSink
}

// Name is "runtimeclass".
func (RuntimeClass) Name() string { return "runtimeclass" }

// Ensure returns a [Rejection] for a pod that contradicts its class.
func (s RuntimeClass) Ensure(_ context.Context, p *Sync) (Outcome, error) {
	name := runtimeclass.Name(p.Pod)
	if name == "" || p.Record.Admitted || p.Record.Rejected != nil {
		return Outcome{}, nil
	}
	class := s.Get(p.Pod, name)
	if class == nil {
		err := runtimeclass.NotFound(name)
		s.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedCreatePodSandBox",
			"Failed to create pod sandbox: "+err.Error())
		p.Problem.Reason, p.Problem.Message = s.Name(), err.Error()
		return Outcome{Halt: true, Waiting: err.Error()}, nil
	}
	if pods.FromAPI(p.Pod) {
		return Outcome{}, nil // the API server's admission applied the class as it was then
	}
	applied, err := runtimeclass.Apply(p.Pod, class)
	switch {
	case err != nil:
		return Outcome{}, &Rejection{Reason: reasonAdmission, Message: err.Error()}
	case applied != p.Pod:
		// The class has just come. The pod with what the class says is on its way to this worker.
		return Outcome{Halt: true, Waiting: "what RuntimeClass " + name + " says of the pod"}, nil
	}
	return Outcome{}, nil
}

// Remove has nothing to give back.
func (RuntimeClass) Remove(context.Context, *Sync) (Outcome, error) { return Outcome{}, nil }
