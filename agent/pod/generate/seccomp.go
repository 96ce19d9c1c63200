package generate

import (
	"errors"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccomp returns the container's profile: its own, the pod's, or the node's default. An unknown or
// incomplete profile is refused; it never counts as no profile (CVE-2023-2431).
func seccomp(pod *v1.Pod, c *v1.Container, node Node) (*runtimeapi.SecurityProfile, error) {
	var profile *v1.SeccompProfile
	if sc := pod.Spec.SecurityContext; sc != nil {
		profile = sc.SeccompProfile
	}
	if sc := c.SecurityContext; sc != nil && sc.SeccompProfile != nil {
		profile = sc.SeccompProfile
	}
	if profile == nil {
		if node.SeccompDefault {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	}
	switch profile.Type {
	case v1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case v1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case v1.SeccompProfileTypeLocalhost:
		return localhostSeccomp(profile, node.SeccompRoot)
	}
	return nil, fmt.Errorf("unknown seccomp profile type: %q", profile.Type)
}

// localhostSeccomp returns a profile beneath root. The profile's name cannot leave root.
func localhostSeccomp(profile *v1.SeccompProfile, root string) (*runtimeapi.SecurityProfile, error) {
	if profile.LocalhostProfile == nil || *profile.LocalhostProfile == "" {
		return nil, containerError("localhostProfile must be set if seccompProfile type is Localhost.")
	}
	name := *profile.LocalhostProfile
	if !isBeneath(name) || filepath.Clean(name) == "." {
		return nil, fmt.Errorf("seccomp localhostProfile %q must be a relative path without '..'", name)
	}
	if root == "" {
		return nil, errors.New("seccomp profiles of type Localhost are not supported on this node")
	}
	return &runtimeapi.SecurityProfile{
		ProfileType:  runtimeapi.SecurityProfile_Localhost,
		LocalhostRef: filepath.Join(root, name),
	}, nil
}
