package steps

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Objects has the API server's objects watched that the pod needs, for as long as the pod is here.
type Objects struct {
	// Use has a pod's objects watched. It returns an object that is not known yet although it
	// should be soon, and until when to wait for it. object is empty if there is none.
	Use func(pod *v1.Pod) (object string, until time.Time)
	// Drop ends the watches for a pod.
	Drop func(uid types.UID)
}

// Name is "objects".
func (Objects) Name() string { return "objects" }

// Ensure holds back a pod that has something to start while the first answers are on their way:
// without them the start could only fail. The worker is woken when the answers come. If the server
// is away, everything that runs goes on.
func (s Objects) Ensure(_ context.Context, p *Sync) (Outcome, error) {
	object, until := s.Use(p.Pod)
	if object == "" || !p.Actions.CreateSandbox && len(p.Actions.Start) == 0 {
		return Outcome{}, nil
	}
	return Outcome{Halt: true, Waiting: object, RetryAt: until}, nil
}

// Remove ends the watches that no other pod needs.
func (s Objects) Remove(_ context.Context, p *Sync) (Outcome, error) {
	s.Drop(p.Pod.UID)
	return Outcome{}, nil
}
