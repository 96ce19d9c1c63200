package steps

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/pod/generate"
)

// withGiven makes a container's config with the devices, CPUs and memory that the container was
// given. A variable of the pod counts more than one of a device plugin.
func withGiven(given allocation.Given, in generate.ContainerInput) (*runtimeapi.ContainerConfig, error) {
	in.Env = slices.Concat(given.Envs, in.Env)
	config, err := generate.Container(in)
	if err != nil {
		return nil, err
	}
	config.Devices = append(config.Devices, given.Devices...)
	config.Mounts = append(config.Mounts, given.Mounts...)
	config.CDIDevices = given.CDIDevices
	if given.CPUs != "" && config.Linux.Resources != nil {
		config.Linux.Resources.CpusetCpus = given.CPUs
	}
	if given.MemoryNodes != "" && config.Linux.Resources != nil {
		config.Linux.Resources.CpusetMems = given.MemoryNodes
	}
	for key, value := range given.Annotations {
		if _, taken := config.Annotations[key]; !taken {
			config.Annotations[key] = value
		}
	}
	return config, nil
}
