package plan

import (
	"fmt"

	"github.com/berthd/berth/internal/pods"
)

// AskedRestart is an operator's request to restart a container.
type AskedRestart struct {
	// Grace replaces the pod's own grace period, in seconds; nil keeps the pod's own.
	Grace *int64 `json:"grace,omitempty"`
}

// Restartable returns the attempt of a container that ends, or has ended, for a restart that an
// operator asks for. The error says why the container cannot be restarted: only app containers and
// sidecars that run, or that would start again anyway, can.
func Restartable(in Input, name string) (*Container, error) {
	d := newDecision(in)
	spec, kind := FindContainer(in.Pod, name)
	c := in.Observed.Latest(name)
	switch {
	case spec == nil:
		return nil, fmt.Errorf("the pod has no container %q", name)
	case kind == Ephemeral:
		return nil, fmt.Errorf("container %s is an ephemeral container, which runs once", name)
	case kind == Init && !pods.Sidecar(spec):
		return nil, fmt.Errorf("container %s is an init container, which runs only before the other containers", name)
	case c == nil || c.Created():
		return nil, fmt.Errorf("container %s has not started yet", name)
	case kind == App && c.Exited():
		if again, _ := d.again(spec); !again {
			return nil, fmt.Errorf("container %s has ended with exit code %d, and its restart policy is %s", name,
				c.ExitCode, d.policy(spec))
		}
	}
	return c, nil
}
