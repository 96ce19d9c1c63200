package steps

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Objects has the API server's objects that the pod needs watched for as long as it is here.
type Objects struct {
	// Use has a pod's objects watched, and says which of them is not known yet although it should be soon, and until when; empty where none is.
	Use func(pod *v1.Pod) (object string, until time.Time)
	// Drop ends that.
	Drop func(uid types.UID)
}

// Name is "objects".
func (Objects) Name() string { return "objects" }

// Ensure holds a pod back that has something to start, as long as the first answers are on their way: without them it could only fail. Whoever knows them then
// wakes its worker. A server that is away holds back nothing that runs.
func (s Objects) Ensure(_ context.Context, p *Pass) (Outcome, error) {
	object, until := s.Use(p.Pod)
	if object == "" || !p.Actions.CreateSandbox && len(p.Actions.Start) == 0 {
		return Outcome{}, nil
	}
	return Outcome{Halt: true, Waiting: object, RetryAt: until}, nil
}

// Remove ends the watches that no other pod needs.
func (s Objects) Remove(_ context.Context, p *Pass) (Outcome, error) {
	s.Drop(p.Pod.UID)
	return Outcome{}, nil
}
