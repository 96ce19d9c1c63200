package native

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	goselinux "github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
)

// labels are the SELinux labels of a sandbox or a container. Both are empty if SELinux is off.
type labels struct {
	// Process is the label of processes, and Mount that of files that only they may use.
	Process string `json:"process,omitempty"`
	Mount   string `json:"mount,omitempty"`
}

// selinux is what the runtime needs of SELinux. If SELinux is off, none of it does anything.
type selinux struct {
	// choose returns labels for options such as "level:s0:c1,c2". Without a level it reserves one that
	// is free.
	choose func(options []string) (process, mount string, err error)
	// reserve keeps the level of a process label from being chosen, until release.
	reserve, release func(process string)
	// relabel labels a file, or a directory and all that is below it on its mount. The path has no
	// symbolic link in it.
	relabel func(ctx context.Context, path, mount string) error
}

// nodeSELinux returns the node's SELinux.
func nodeSELinux() selinux {
	return selinux{
		choose: func(options []string) (process, mount string, err error) {
			process, mount, err = label.InitLabels(options)
			if err == nil && process != "" {
				if err = goselinux.SecurityCheckContext(process); err != nil && !levelled(options) {
					goselinux.ReleaseLabel(process)
				}
			}
			return process, mount, err
		},
		// An error says that another pod has the level, too: its config names it.
		reserve: func(process string) { _ = goselinux.ReserveLabelV2(process) },
		release: goselinux.ReleaseLabel,
		relabel: func(ctx context.Context, path, mount string) error {
			if !goselinux.GetEnabled() || mount == "" {
				return nil
			}
			err := relabelling{attribute: selinuxAttribute, label: mount}.relabel(ctx, path)
			if errors.Is(err, unix.ENOTSUP) {
				return nil // files that cannot have a label have that of their file system
			}
			return err
		},
	}
}

// levelled reports whether options name a level.
func levelled(options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, "level:") })
}

// labels returns the labels that an option asks for. What it does not say is as in a pod's process
// label, if that is not empty, and else as the node's policy says.
func (s selinux) labels(pod string, asked *runtimeapi.SELinuxOption) (labels, error) {
	options, err := goselinux.DupSecOpt(pod)
	if err != nil {
		return labels{}, fmt.Errorf("read the pod's SELinux label %q: %w", pod, err)
	}
	for _, part := range []struct{ name, value string }{
		{"user", asked.GetUser()}, {"role", asked.GetRole()}, {"type", asked.GetType()}, {"level", asked.GetLevel()},
	} {
		if part.value != "" {
			options = append(options, part.name+":"+part.value) // the last one of a name counts
		}
	}
	process, mount, err := s.choose(options)
	if err != nil {
		return labels{}, classify.Invalidf("SELinux options %q: %v", options, err)
	}
	return labels{Process: process, Mount: mount}, nil
}

// selinuxOptions returns what a sandbox's config asks for.
func (s *sandbox) selinuxOptions() *runtimeapi.SELinuxOption {
	return s.config.GetLinux().GetSecurityContext().GetSelinuxOptions()
}

// releaseLabel gives a sandbox's level back if the runtime has chosen it. One that a config names
// may be another pod's, too.
func (r *Runtime) releaseLabel(sb *sandbox, has labels) {
	if has.Process != "" && sb.selinuxOptions().GetLevel() == "" {
		r.selinux.release(has.Process)
	}
}

// reserveLabel reserves the level of a restored sandbox.
func (r *Runtime) reserveLabel(sb *sandbox) {
	if process := sb.record.SELinux.Process; process != "" {
		r.selinux.reserve(process)
	}
}

// containerLabels returns the labels of a container: those of its sandbox, as far as its config
// does not ask for others.
func (r *Runtime) containerLabels(sb *sandbox, config *runtimeapi.ContainerConfig) (labels, error) {
	pod, _ := sb.snapshot()
	asked := config.GetLinux().GetSecurityContext().GetSelinuxOptions()
	if asked == nil {
		return pod.SELinux, nil
	}
	return r.selinux.labels(pod.SELinux.Process, asked)
}

// withLabels sets SELinux labels. SELinux does not confine privileged processes.
func withLabels(has labels, privileged bool) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Process.SelinuxLabel, s.Linux.MountLabel = has.Process, has.Mount
		if privileged {
			s.Process.SelinuxLabel = ""
		}
		return nil
	}
}
