package plan

import "time"

// ContainerStop is a container's stop that has begun: its preStop hook, then its signal, then SIGKILL, all within the grace.
type ContainerStop struct {
	// Since is when it began, and Grace how long the container has from then.
	Since time.Time     `json:"since"`
	Grace time.Duration `json:"grace"`
	// Hooked is set once the preStop hook has ended or was given up: it is not run again.
	Hooked bool `json:"hooked,omitempty"`
	// Signaled is set once the runtime was asked to stop the container.
	Signaled bool `json:"signaled,omitempty"`
}

// Left returns what is left of the grace at now, 0 where nothing is. A clock that was put back gives no more than all of it.
func (s ContainerStop) Left(now time.Time) time.Duration {
	return max(s.Grace-max(now.Sub(s.Since), 0), 0)
}

// Resumed returns the stop as another agent goes on with it from now. A container that has its signal is not given more time. One that has not begins its grace
// anew: nobody was there to let it end.
func (s ContainerStop) Resumed(now time.Time) ContainerStop {
	if !s.Signaled {
		s.Since = now
	}
	return s
}
