package generate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// portMappings returns the host ports of the pod's containers and sidecars, each once. A pod on the
// host's network needs no mapping: its ports are the host's. A hostIP is passed on as it is. An
// empty one means all of the node's addresses.
func portMappings(pod *v1.Pod) ([]*runtimeapi.PortMapping, error) {
	if pod.Spec.HostNetwork {
		return nil, nil
	}
	type key struct {
		protocol        runtimeapi.Protocol
		ip              string
		host, container int32
	}
	var out []*runtimeapi.PortMapping
	seen := map[key]bool{}
	for c := range longRunning(pod) {
		for _, port := range c.Ports {
			protocol, err := protocolOf(port.Protocol)
			if err != nil {
				return nil, fmt.Errorf("port %d of container %q: %w", port.ContainerPort, c.Name, err)
			}
			k := key{protocol: protocol, ip: port.HostIP, host: port.HostPort, container: port.ContainerPort}
			if port.HostPort == 0 || seen[k] {
				continue
			}
			seen[k] = true
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol, ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	return out, nil
}

func protocolOf(protocol v1.Protocol) (runtimeapi.Protocol, error) {
	if protocol == "" {
		protocol = v1.ProtocolTCP
	}
	value, ok := runtimeapi.Protocol_value[strings.ToUpper(string(protocol))]
	if !ok {
		return 0, fmt.Errorf("unknown protocol %q", protocol)
	}
	return runtimeapi.Protocol(value), nil
}
