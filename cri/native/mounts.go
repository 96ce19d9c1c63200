package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/internal/mounttable"
)

// mounts returns the option that mounts what a container's config says, and the files of its
// sandbox where the config has nothing.
func (r *Runtime) mounts(
	ctx context.Context, sb *sandbox, config *runtimeapi.ContainerConfig, volumes *imageVolumes, has labels,
) (oci.SpecOpts, error) {
	var asked []specs.Mount
	root := "" // of the propagation of the container's own root
	for _, m := range config.GetMounts() {
		mount, err := bind(ctx, m, volumes)
		if err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.GetContainerPath(), err)
		}
		if m.GetSelinuxRelabel() && m.GetImage().GetImage() == "" {
			if err := r.selinux.relabel(ctx, mount.Source, has.Mount); err != nil {
				return nil, fmt.Errorf("relabel %s for SELinux: %w", mount.Source, err)
			}
		}
		asked = append(asked, mount)
		switch m.GetPropagation() {
		case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
			root = "rshared"
		case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
			root = cmp.Or(root, "rslave")
		}
	}
	for file, at := range map[string]string{
		resolvConf: "/etc/resolv.conf", hostsFile: "/etc/hosts", hostnameFile: "/etc/hostname",
	} {
		option := "rw"
		if config.GetLinux().GetSecurityContext().GetReadonlyRootfs() {
			option = "ro"
		}
		if !mounted(asked, at) {
			asked = append(asked, specs.Mount{
				Destination: at, Type: "bind", Source: filepath.Join(r.sandboxDir(sb.id), file),
				Options: []string{"rbind", "rprivate", option},
			})
		}
	}
	if !mounted(asked, "/dev/shm") {
		asked = append(asked, r.shm(sb))
	}
	access := "ro"
	if config.GetLinux().GetSecurityContext().GetPrivileged() {
		access = "rw"
	}
	asked = append([]specs.Mount{{
		Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
		Options: []string{"nosuid", "noexec", "nodev", "relatime", access},
	}}, asked...)
	return withMounts(asked, root), nil
}

func mounted(list []specs.Mount, at string) bool {
	return slices.ContainsFunc(list, func(m specs.Mount) bool { return m.Destination == at })
}

// withMounts adds mounts. One replaces a default mount of the same place, and parents come before
// what is below them.
func withMounts(asked []specs.Mount, rootPropagation string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		var places []string
		for _, m := range asked {
			places = append(places, m.Destination)
		}
		s.Mounts = slices.DeleteFunc(s.Mounts, func(m specs.Mount) bool { return slices.Contains(places, m.Destination) })
		s.Mounts = append(s.Mounts, asked...)
		sortMounts(s.Mounts)
		s.Linux.RootfsPropagation = rootPropagation
		return nil
	}
}

// sortMounts puts parents before what is below them.
func sortMounts(list []specs.Mount) {
	slices.SortStableFunc(list, func(a, b specs.Mount) int {
		return cmp.Compare(strings.Count(a.Destination, "/"), strings.Count(b.Destination, "/"))
	})
}

// bind returns a mount of the config. Its source must exist. An image is always read-only.
func bind(ctx context.Context, m *runtimeapi.Mount, volumes *imageVolumes) (specs.Mount, error) {
	if !filepath.IsAbs(m.GetContainerPath()) {
		return specs.Mount{}, classify.Invalidf("its path in the container is not absolute")
	}
	var source string
	var err error
	options := []string{"rbind", "rprivate", "ro"} // those of an image
	if m.GetImage().GetImage() != "" {
		source, err = volumes.mount(ctx, m)
	} else if source, err = hostPath(m); err == nil {
		options, err = bindOptions(m, source)
	}
	if err != nil {
		return specs.Mount{}, err
	}
	if len(m.GetUidMappings()) > 0 {
		options = append(options, "ridmap")
	}
	return specs.Mount{
		Destination: filepath.Clean(m.GetContainerPath()), Type: "bind", Source: source, Options: options,
		UIDMappings: idMappings(m.GetUidMappings()), GIDMappings: idMappings(m.GetGidMappings()),
	}, nil
}

// hostPath returns the path on the node that a mount names, without links in it.
func hostPath(m *runtimeapi.Mount) (string, error) {
	source, err := filepath.EvalSymlinks(m.GetHostPath())
	if err == nil {
		_, err = os.Stat(source)
	}
	if err != nil {
		return "", classify.Invalidf("its source %s: %v", m.GetHostPath(), err)
	}
	return source, nil
}

func bindOptions(m *runtimeapi.Mount, source string) ([]string, error) {
	options := []string{"rbind"}
	switch m.GetPropagation() {
	case runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		options = append(options, "rprivate")
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		if err := propagates(source, "shared:", "master:"); err != nil {
			return nil, err
		}
		options = append(options, "rslave")
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		if err := propagates(source, "shared:"); err != nil {
			return nil, err
		}
		options = append(options, "rshared")
	default:
		return nil, classify.Invalidf("unknown propagation %v", m.GetPropagation())
	}
	private := m.GetPropagation() == runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	switch {
	case m.GetRecursiveReadOnly() && (!m.GetReadonly() || !private):
		return nil, classify.Invalidf("a mount that is recursively read-only must be read-only and private")
	case m.GetRecursiveReadOnly():
		options = append(options, "rro")
	case m.GetReadonly():
		options = append(options, "ro")
	default:
		options = append(options, "rw")
	}
	return options, nil
}

// propagates returns an error unless mounts below a path come from, or go to, other mount
// namespaces in one of these ways (proc_pid_mountinfo(5), the optional fields).
func propagates(path string, ways ...string) error {
	nearest, err := mounttable.Of(path)
	if errors.Is(err, mounttable.ErrNone) {
		return classify.Invalidf("%s", err)
	}
	if err != nil {
		return fmt.Errorf("look how mounts propagate: %w", err)
	}
	for _, way := range ways {
		if strings.Contains(nearest.Optional, way) {
			return nil
		}
	}
	return classify.Invalidf("%s is on the mount %s, which does not propagate mounts: make it shared", path,
		nearest.Mountpoint)
}
