package steps

import (
	"fmt"

	"github.com/berthd/berth/agent/pod/generate"
)

// target returns the id of the container whose processes an ephemeral container shares
// (targetContainerName). It is empty for any other container. If the target does not run yet, the
// error makes the ephemeral container wait for it.
func target(p *Sync, container string) (id string, err error) {
	name := ""
	for i := range p.Pod.Spec.EphemeralContainers {
		if c := &p.Pod.Spec.EphemeralContainers[i]; c.Name == container {
			name = c.TargetContainerName
		}
	}
	if name == "" {
		return "", nil
	}
	if id := p.Started[name]; id != "" {
		return id, nil
	}
	if c := p.Observed.Latest(name); c != nil && c.Running() {
		return c.Id, nil
	}
	return "", &generate.ConfigError{
		Reason: generate.ReasonContainer, Message: fmt.Sprintf("unable to find target container %v", name),
	}
}
