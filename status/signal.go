package status

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stopSignal is the signal that stops the container, as the runtime reports it; nil if the runtime
// does not report it.
func stopSignal(c *runtimeapi.ContainerStatus) *v1.Signal {
	if c.GetStopSignal() == runtimeapi.Signal_RUNTIME_DEFAULT {
		return nil
	}
	// Protobuf names cannot have + and -: SIGRTMINPLUS1 is SIGRTMIN+1.
	s := v1.Signal(strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(c.GetStopSignal().String()))
	return &s
}
