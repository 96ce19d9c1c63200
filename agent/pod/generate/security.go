package generate

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// contexts returns the security contexts of the container and of the pod. They are empty if there
// are none.
func contexts(pod *v1.Pod, c *v1.Container) (own v1.SecurityContext, shared v1.PodSecurityContext) {
	if c.SecurityContext != nil {
		own = *c.SecurityContext
	}
	if pod.Spec.SecurityContext != nil {
		shared = *pod.Spec.SecurityContext
	}
	return own, shared
}

// either returns the container's setting, or else the pod's.
func either[T any](own, shared *T) *T {
	if own != nil {
		return own
	}
	return shared
}

// containerSecurity returns the container's security context: its own settings, else the pod's,
// else the image's or the node's.
func containerSecurity(in ContainerInput) (*runtimeapi.LinuxContainerSecurityContext, error) {
	own, shared := contexts(in.Pod, in.Container)
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities:   capabilities(own.Capabilities),
		Privileged:     isTrue(own.Privileged),
		ReadonlyRootfs: isTrue(own.ReadOnlyRootFilesystem),
		NoNewPrivs:     own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		SelinuxOptions: selinux(either(own.SELinuxOptions, shared.SELinuxOptions)),
		RunAsGroup:     idValue(either(own.RunAsGroup, shared.RunAsGroup)),
	}
	if err := checkID("runAsGroup", either(own.RunAsGroup, shared.RunAsGroup)); err != nil {
		return nil, err
	}
	runAs, err := userOf(in.Pod, in.Container, in.Image)
	if err != nil {
		return nil, err
	}
	out.RunAsUser, out.RunAsUsername = idValue(runAs.uid), runAs.name
	if out.SupplementalGroups, err = groups(in.Pod, in.VolumeGroups); err != nil {
		return nil, err
	}
	if out.SupplementalGroupsPolicy, err = groupsPolicy(in.Pod, in.Node.Features.SupplementalGroupsPolicy); err != nil {
		return nil, err
	}
	if out.Seccomp, err = seccomp(in.Pod, in.Container, in.Node); err != nil {
		return nil, err
	}
	//nolint:staticcheck // runtimes before containerd 1.7 read the deprecated field only
	if out.Apparmor, out.ApparmorProfile, err = apparmor(in.Pod, in.Container, in.Node.Features.AppArmor); err != nil {
		return nil, err
	}
	if out.MaskedPaths, out.ReadonlyPaths, err = procPaths(own.ProcMount, in.Pod, in.Node.MaskedPaths); err != nil {
		return nil, err
	}
	if out.NamespaceOptions, err = namespaces(in.Pod, in.UserNamespace); err != nil {
		return nil, err
	}
	if in.TargetID != "" && out.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		out.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		out.NamespaceOptions.TargetId = in.TargetID
	}
	return out, nil
}

func capabilities(from *v1.Capabilities) *runtimeapi.Capability {
	if from == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range from.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range from.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

// selinux passes the label on. A runtime on a node without SELinux ignores it, as in Kubernetes.
func selinux(from *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if from == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: from.User, Role: from.Role, Type: from.Type, Level: from.Level}
}

// procPaths returns which paths of /proc and /sys are hidden from the container and which are
// read-only. These are the lists that container runtimes share, or nothing for procMount Unmasked.
// Only a pod in a user namespace of its own may have Unmasked.
func procPaths(mount *v1.ProcMountType, pod *v1.Pod, more []string) (masked, readonly []string, err error) {
	switch {
	case mount == nil, *mount == v1.DefaultProcMount:
		masked = []string{
			"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
			"/proc/sched_debug",
			"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware",
		}
		readonly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
		return slices.Concat(masked, more), readonly, nil
	case *mount != v1.UnmaskedProcMount:
		return nil, nil, fmt.Errorf("unknown procMount %q", *mount)
	case pod.Spec.HostUsers == nil || *pod.Spec.HostUsers:
		return nil, nil, fmt.Errorf("procMount %s needs `spec.hostUsers: false`", *mount)
	}
	return []string{}, []string{}, nil
}

// hasPrivileged reports whether any container of the pod, of any kind, is privileged. Then the
// sandbox must be privileged, too.
func hasPrivileged(pod *v1.Pod) bool {
	for c := range pods.Containers(&pod.Spec) {
		if c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged) {
			return true
		}
	}
	return false
}
