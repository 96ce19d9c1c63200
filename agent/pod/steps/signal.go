package steps

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// reasonNoStopSignal is the reason of the event about a runtime that stops a container with another
// signal than the pod asks for.
const reasonNoStopSignal = "StopSignalNotSupported"

// checkSignal reports with an event that the runtime has not taken the stop signal that a container
// was made with. A runtime that does not know the field ignores it. Only the container's status
// shows that.
func (s *Starter) checkSignal(ctx context.Context, p *Sync, c *v1.Container, id string, asked runtimeapi.Signal) {
	if asked == runtimeapi.Signal_RUNTIME_DEFAULT {
		return
	}
	status, err := s.Runtime.ContainerStatus(ctx, id)
	if err != nil {
		p.Log.Debug("stop signal not checked", "container", c.Name, "err", err)
		return
	}
	if status.GetStopSignal() != asked {
		s.Events.Pod(p.Pod, c.Name, v1.EventTypeWarning, reasonNoStopSignal,
			fmt.Sprintf("lifecycle.stopSignal %s has no effect: the container runtime is too old for it, and sends "+
				"what the image says, or SIGTERM", *c.Lifecycle.StopSignal))
	}
}
