package generate

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// SandboxInput is what a sandbox's config is made of. The same input gives the same config, so
// containers can be created with a config that is made anew.
type SandboxInput struct {
	Pod  *v1.Pod
	Node Node
	// Attempt counts the pod's sandboxes, from 0.
	Attempt uint32
	// CgroupParent is the pod's cgroup, in the runtime's notation.
	CgroupParent string
	// Resources and Overhead are the pod's, computed by package cgroups; nil leaves them out.
	Resources, Overhead *runtimeapi.LinuxContainerResources
	// VolumeGroups are group ids that the pod's volumes ask for.
	VolumeGroups []int64
	// UserNamespace is the pod's id mapping, for hostUsers: false. If it is nil, such a pod is
	// refused.
	UserNamespace *runtimeapi.UserNamespace
}

// Sandbox returns the config of a pod's sandbox. The error is a [ConfigError] of [ReasonSandbox].
// [DNS] returns the warnings of the DNS part; they are reported only when a sandbox is created.
func Sandbox(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	config, err := sandbox(in)
	if err != nil {
		return nil, withReason(ReasonSandbox, err)
	}
	return config, nil
}

func sandbox(in SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	pod := in.Pod
	dns, _ := DNS(pod, in.Node.DNS)
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: in.Attempt,
		},
		Labels:       cri.SandboxLabels(pod),
		Annotations:  cri.SandboxAnnotations(pod, in.Node.RuntimeAnnotations),
		LogDirectory: cri.PodLogDir(in.Node.PodLogsDir, cri.IDOf(pod)),
		DnsConfig:    dns,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: in.CgroupParent,
			Resources:    in.Resources,
			Overhead:     in.Overhead,
		},
	}
	var err error
	if !pod.Spec.HostNetwork {
		if config.Hostname, err = kernelHostname(pod, in.Node.DNS.ClusterDomain); err != nil {
			return nil, err
		}
	}
	if config.PortMappings, err = portMappings(pod); err != nil {
		return nil, err
	}
	if config.Linux.Sysctls, err = sysctls(pod); err != nil {
		return nil, err
	}
	config.Linux.SecurityContext, err = sandboxSecurity(in)
	return config, err
}

// sandboxSecurity returns the security context of the sandbox itself. The sandbox's process runs
// with the runtime's own seccomp profile, whatever profile the containers have.
func sandboxSecurity(in SandboxInput) (*runtimeapi.LinuxSandboxSecurityContext, error) {
	_, shared := contexts(in.Pod, &v1.Container{})
	out := &runtimeapi.LinuxSandboxSecurityContext{
		Privileged:     hasPrivileged(in.Pod),
		Seccomp:        &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
		RunAsUser:      idValue(shared.RunAsUser),
		SelinuxOptions: selinux(shared.SELinuxOptions),
	}
	if err := checkID("runAsUser", shared.RunAsUser); err != nil {
		return nil, err
	}
	if err := checkID("runAsGroup", shared.RunAsGroup); err != nil {
		return nil, err
	}
	if shared.RunAsUser != nil {
		// The CRI forbids a group without a user, and containerd refuses it. The sandbox's own
		// process needs neither.
		out.RunAsGroup = idValue(shared.RunAsGroup)
	}
	var err error
	if out.SupplementalGroups, err = groups(in.Pod, in.VolumeGroups); err != nil {
		return nil, err
	}
	if out.SupplementalGroupsPolicy, err = groupsPolicy(in.Pod, in.Node.Features.SupplementalGroupsPolicy); err != nil {
		return nil, err
	}
	out.NamespaceOptions, err = namespaces(in.Pod, in.UserNamespace)
	return out, err
}
