package generate

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostsPath is where a container sees the pod's hosts file.
const hostsPath = "/etc/hosts"

// Volume is a volume of the pod that is ready to be mounted into containers.
type Volume struct {
	// HostPath is where the volume is on the node. It is empty for an image volume.
	HostPath string
	// Device says that it is a block device, or a link to one.
	Device bool
	// Image is the image of an image volume, which the runtime mounts. It is nil for any other
	// volume.
	Image *runtimeapi.ImageSpec
	// ReadOnly says that no container may write to the volume (ConfigMaps, Secrets, images and the
	// like).
	ReadOnly bool
	// Relabel says that the volume is berth's own and may be relabelled on a node with SELinux.
	Relabel bool
}

// SubPathFunc opens a subPath of a volume for a container and returns the path on the node to
// mount. It is safe against links that change meanwhile. index is the mount's position in the
// container. subPath is relative, expanded and without "..". The error is not shown to users.
type SubPathFunc func(index int, volume, subPath string) (hostPath string, err error)

// MountInput is what a container's mounts are made of.
type MountInput struct {
	// Volumes are the pod's volumes by name.
	Volumes map[string]Volume
	// SubPath may be nil. Then mounts with a subPath are refused, except of image volumes.
	SubPath SubPathFunc
	// HostsFile is the pod's hosts file on the node (see [NeedsHostsFile]). If it is empty, there
	// is no mount for it. A container that mounts something at /etc/hosts keeps that.
	HostsFile string
	// TerminationLog is the file on the node for the container's termination message. If it is
	// empty, there is no mount for it.
	TerminationLog string
}

// mounts returns the container's mounts: volumes in order, the hosts file, and the termination log.
func mounts(in ContainerInput) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	hosts := in.Mounts.HostsFile != ""
	for i := range in.Container.VolumeMounts {
		mount, err := volumeMount(in, i)
		if err != nil {
			return nil, err
		}
		hosts = hosts && path.Clean(mount.ContainerPath) != hostsPath
		out = append(out, mount)
	}
	relabel := in.Node.Features.SELinux
	if hosts {
		out = append(out,
			&runtimeapi.Mount{HostPath: in.Mounts.HostsFile, ContainerPath: hostsPath, SelinuxRelabel: relabel})
	}
	if in.Mounts.TerminationLog != "" && in.Container.TerminationMessagePath != "" {
		out = append(out, &runtimeapi.Mount{
			HostPath:       in.Mounts.TerminationLog,
			ContainerPath:  absolute(in.Container.TerminationMessagePath),
			SelinuxRelabel: relabel,
		})
	}
	if userns := in.UserNamespace; userns != nil && in.Pod.Spec.HostUsers != nil && !*in.Pod.Spec.HostUsers {
		for _, mount := range out {
			mount.UidMappings, mount.GidMappings = userns.Uids, userns.Gids
		}
	}
	return out, nil
}

// devices returns the container's block devices.
func devices(in ContainerInput) ([]*runtimeapi.Device, error) {
	var out []*runtimeapi.Device
	for _, from := range in.Container.VolumeDevices {
		volume, ok := in.Mounts.Volumes[from.Name]
		if !ok || !volume.Device {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", from.Name, in.Container.Name)
		}
		permissions := "mrw"
		if volume.ReadOnly {
			permissions = "mr"
		}
		out = append(out,
			&runtimeapi.Device{HostPath: volume.HostPath, ContainerPath: from.DevicePath, Permissions: permissions})
	}
	return out, nil
}

// volumeMount translates the container's mount at index.
func volumeMount(in ContainerInput, index int) (*runtimeapi.Mount, error) {
	from := &in.Container.VolumeMounts[index]
	volume, ok := in.Mounts.Volumes[from.Name]
	if !ok || volume.Device || volume.HostPath == "" && volume.Image == nil {
		return nil, fmt.Errorf("cannot find volume %q to mount into container %q", from.Name, in.Container.Name)
	}
	out := &runtimeapi.Mount{
		ContainerPath:  absolute(from.MountPath),
		Readonly:       from.ReadOnly || volume.ReadOnly,
		SelinuxRelabel: volume.Relabel && in.Node.Features.SELinux,
	}
	var err error
	if out.Propagation, err = propagation(from.MountPropagation); err != nil {
		return nil, err
	}
	if out.RecursiveReadOnly, err = recursiveReadOnly(from, in.Node.Features.RecursiveReadOnly); err != nil {
		return nil, err
	}
	subPath, err := subPathOf(from, in.values)
	switch {
	case err != nil:
		return nil, err
	case volume.Image != nil:
		out.Image, out.ImageSubPath = volume.Image, subPath
		return out, nil
	case subPath == "":
		out.HostPath = volume.HostPath
		return out, nil
	}
	out.HostPath, err = openSubPath(in, index, subPath)
	return out, err
}

// openSubPath asks the caller for the subPath. It keeps what the caller's error says of the node
// out of the message.
func openSubPath(in ContainerInput, index int, subPath string) (string, error) {
	name := in.Container.VolumeMounts[index].Name
	hostPath, err := "", errors.New("no subPath support")
	if in.Mounts.SubPath != nil {
		hostPath, err = in.Mounts.SubPath(index, name, subPath)
	}
	if err != nil {
		out := &ConfigError{
			Message: fmt.Sprintf("failed to prepare subPath for volumeMount %q of container %q", name,
				in.Container.Name),
			Err: fmt.Errorf("prepare subPath of volume %q for container %q of pod %s: %w", name, in.Container.Name,
				podName(in.Pod), err),
		}
		if why, ok := errors.AsType[interface {
			error
			Why() string
		}](err); ok && why.Why() != "" {
			out.Detail, out.Field = why.Why(), subPathField(in, index)
		}
		return "", out
	}
	return hostPath, nil
}

// subPathField is the path in the pod of a mount's subPath or subPathExpr.
func subPathField(in ContainerInput, index int) string {
	field := "subPath"
	if in.Container.VolumeMounts[index].SubPathExpr != "" {
		field = "subPathExpr"
	}
	for list, containers := range map[string][]v1.Container{
		"initContainers": in.Pod.Spec.InitContainers, "containers": in.Pod.Spec.Containers,
	} {
		for i := range containers {
			if containers[i].Name == in.Container.Name {
				return fmt.Sprintf("spec.%s[%d].volumeMounts[%d].%s", list, i, index, field)
			}
		}
	}
	return ""
}

// maxSubPath is more than a path can have (PATH_MAX), with the references that are replaced.
const maxSubPath = 2 * 4096

// subPathOf returns a mount's subPath with its variables replaced, after a check that it cannot
// leave the volume. Errors name the expression, not its result: the variables may hold secrets.
func subPathOf(mount *v1.VolumeMount, values map[string]string) (string, error) {
	subPath, written := mount.SubPath, mount.SubPath
	if mount.SubPathExpr != "" {
		written = mount.SubPathExpr
		missing := map[string]bool{}
		room := maxSubPath
		var err error
		subPath, err = expand(mount.SubPathExpr, func(name string) (string, bool) {
			if values[name] == "" {
				missing[name] = true
			}
			return values[name], true
		}, func(n int) error {
			if room -= n; room < 0 {
				return fmt.Errorf("unable to provision the SubPath of volume mount %q: longer than a path can be", mount.Name)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
		if len(missing) > 0 {
			return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
		}
	}
	if path.IsAbs(subPath) {
		return "", fmt.Errorf("error SubPath `%s` must not be an absolute path", written)
	}
	if !isBeneath(subPath) {
		return "", fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", written)
	}
	return subPath, nil
}

// isBeneath reports whether a path is relative and has no element "..".
func isBeneath(name string) bool {
	return !path.IsAbs(name) && !slices.Contains(strings.Split(name, "/"), "..") && !strings.Contains(name, "\x00")
}

func propagation(mode *v1.MountPropagationMode) (runtimeapi.MountPropagation, error) {
	if mode == nil {
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	}
	switch *mode {
	case v1.MountPropagationNone:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE, nil
	case v1.MountPropagationHostToContainer:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER, nil
	case v1.MountPropagationBidirectional:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL, nil
	}
	return 0, fmt.Errorf("invalid MountPropagation mode: %q", *mode)
}

// recursiveReadOnly reports whether the mounts beneath a mount are read-only, too.
func recursiveReadOnly(mount *v1.VolumeMount, supported bool) (bool, error) {
	mode := mount.RecursiveReadOnly
	if mode == nil || *mode == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	fail := func(why string) (bool, error) {
		return false, fmt.Errorf(
			"failed to resolve recursive read-only mode: volume %q requested recursive read-only mode, but %s",
			mount.Name, why)
	}
	switch p := mount.MountPropagation; {
	case !mount.ReadOnly:
		return fail("it is not read-only")
	case p != nil && *p != v1.MountPropagationNone:
		return fail(fmt.Sprintf("it is not compatible with propagation %q", *p))
	case *mode == v1.RecursiveReadOnlyIfPossible:
		return supported, nil
	case *mode != v1.RecursiveReadOnlyEnabled:
		return false, fmt.Errorf("failed to resolve recursive read-only mode: unknown recursive read-only mode %q",
			*mode)
	case !supported:
		return fail("it is not supported by the runtime")
	}
	return true, nil
}

// absolute makes a path in a container start at its root.
func absolute(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return "/" + name
}
