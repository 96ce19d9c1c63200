package plan

import "time"

// ContainerStop is a container's stop that has begun: its preStop hook, then its signal, then
// SIGKILL, all within the grace.
type ContainerStop struct {
	// Since is when the stop began. Grace is how long the container has from then.
	Since time.Time     `json:"since"`
	Grace time.Duration `json:"grace"`
	// Hooked is set once the preStop hook has ended or was given up. The hook is not run again.
	Hooked bool `json:"hooked,omitempty"`
	// Signaled is set once the runtime was asked to stop the container.
	Signaled bool `json:"signaled,omitempty"`
}

// Left returns what is left of the grace at now, 0 for nothing. After the clock was put back, it
// returns at most the whole grace.
func (s ContainerStop) Left(now time.Time) time.Duration {
	return max(s.Grace-max(now.Sub(s.Since), 0), 0)
}

// Resumed returns the stop for another agent that goes on with it from now. A container that has
// its signal gets no more time. The grace of any other container begins anew, because no agent was
// there to stop it.
func (s ContainerStop) Resumed(now time.Time) ContainerStop {
	if !s.Signaled {
		s.Since = now
	}
	return s
}
