package probes

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ResolvePort returns the number of a probe's or hook's port, from 1 to 65535. The port is a
// number, the name of a container's port, or a number written as a string.
func ResolvePort(port intstr.IntOrString, container *v1.Container) (int, error) {
	number := port.IntValue()
	if port.Type == intstr.String {
		var err error
		if number, err = namedPort(port.StrVal, container); err != nil {
			return 0, err
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", number)
	}
	return number, nil
}

// namedPort looks a name up in the container's ports.
func namedPort(name string, container *v1.Container) (int, error) {
	for _, p := range container.Ports {
		if p.Name == name {
			return int(p.ContainerPort), nil
		}
	}
	number, err := strconv.Atoi(name)
	if err != nil {
		return 0, fmt.Errorf("find port of container %s: it has no port named %q", container.Name, name)
	}
	return number, nil
}
