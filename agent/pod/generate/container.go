package generate

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// ContainerInput is what a container's config is made of.
type ContainerInput struct {
	Pod *v1.Pod
	// Container is one of the pod's containers. An ephemeral container is given as its common part.
	Container *v1.Container
	Node      Node
	// RestartCount is how often this container was restarted, from 0. The log file is named by it.
	RestartCount int
	Image        cri.Image
	// Env is what [Env] returned for this container.
	Env    []*runtimeapi.KeyValue
	Mounts MountInput
	// Resources are the container's, computed by package cgroups; nil leaves them out.
	Resources *runtimeapi.LinuxContainerResources
	// VolumeGroups and UserNamespace are as in [SandboxInput].
	VolumeGroups  []int64
	UserNamespace *runtimeapi.UserNamespace
	// TargetID is the container whose processes an ephemeral container shares. It is empty for any
	// other container.
	TargetID string

	// values is Env by name.
	values map[string]string
}

// Container returns the config of a container. The error is a [ConfigError] of [ReasonContainer].
func Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	config, err := container(in)
	if err != nil {
		return nil, withReason(ReasonContainer, err)
	}
	return config, nil
}

func container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	c := in.Container
	in.values = envMap(in.Env)
	lookup := func(name string) (string, bool) {
		value, ok := in.values[name]
		return value, ok
	}
	room := budget{what: "the container's command"}
	command, err := expandAll(c.Command, lookup, room.take)
	if err != nil {
		return nil, err
	}
	args, err := expandAll(c.Args, lookup, room.take)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(max(in.RestartCount, 0))},
		Image:       &runtimeapi.ImageSpec{Image: in.Image.Ref, UserSpecifiedImage: c.Image},
		Command:     command,
		Args:        args,
		WorkingDir:  c.WorkingDir,
		Envs:        in.Env,
		Labels:      cri.ContainerLabels(in.Pod, c.Name),
		Annotations: cri.ContainerAnnotations(in.Pod, c, in.RestartCount),
		LogPath:     cri.ContainerLogPath(c.Name, in.RestartCount),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
	}
	security, err := containerSecurity(in)
	if err != nil {
		return nil, err
	}
	config.Linux = &runtimeapi.LinuxContainerConfig{Resources: in.Resources, SecurityContext: security}
	if config.StopSignal, err = stopSignal(c); err != nil {
		return nil, err
	}
	if config.Devices, err = devices(in); err != nil {
		return nil, err
	}
	// Mounts come last because they may prepare something on the node. Nothing after them can
	// refuse the container.
	config.Mounts, err = mounts(in)
	return config, err
}

// stopSignal returns the container's own stop signal, or the runtime's default, which is the
// image's.
func stopSignal(c *v1.Container) (runtimeapi.Signal, error) {
	if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_RUNTIME_DEFAULT, nil
	}
	name := string(*c.Lifecycle.StopSignal)
	value, ok := runtimeapi.Signal_value[strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(name)]
	if !ok || !strings.HasPrefix(name, "SIG") {
		return 0, fmt.Errorf("stopSignal %q of container %q is not a signal", name, c.Name)
	}
	return runtimeapi.Signal(value), nil
}

// envMap returns the variables by name.
func envMap(env []*runtimeapi.KeyValue) map[string]string {
	out := make(map[string]string, len(env))
	for _, kv := range env {
		out[kv.Key] = string(kv.Value)
	}
	return out
}
