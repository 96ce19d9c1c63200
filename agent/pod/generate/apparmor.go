package generate

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// errNoAppArmor is the error, in the kubelet's words, for a pod with a profile on a node that does
// not enforce profiles.
var errNoAppArmor = errors.New("AppArmor is not enabled on the host")

// CheckAppArmor returns why the pod's AppArmor profiles cannot be enforced. It returns nil if they
// can be, or if the pod has none. enforced says whether the kernel enforces any profile. Admission
// calls it; [Container] refuses the same pods.
func CheckAppArmor(pod *v1.Pod, enforced bool) error {
	wanted := false
	want := func(p *v1.AppArmorProfile) { wanted = wanted || p != nil && p.Type != v1.AppArmorProfileTypeUnconfined }
	if sc := pod.Spec.SecurityContext; sc != nil {
		want(sc.AppArmorProfile)
	}
	unnamed := false
	for c := range pods.Containers(&pod.Spec) {
		profile, err := apparmorProfile(pod, c)
		if err != nil {
			return err
		}
		want(profile)
		unnamed = unnamed || profile != nil && profile.Type == v1.AppArmorProfileTypeLocalhost &&
			(profile.LocalhostProfile == nil || strings.TrimSpace(*profile.LocalhostProfile) == "")
	}
	switch {
	case wanted && !enforced:
		return errNoAppArmor
	case unnamed:
		return errors.New("invalid empty AppArmor profile name")
	}
	return nil
}

// apparmor returns the container's profile, also in the old notation for runtimes before containerd
// 1.7. The profile is the container's own, that of the pod's old annotation, or the pod's. It is
// nil if there is none: then the runtime decides. A node that cannot enforce profiles refuses any
// profile but Unconfined.
func apparmor(
	pod *v1.Pod, c *v1.Container, enforced bool,
) (profile *runtimeapi.SecurityProfile, old string, err error) {
	wanted, err := apparmorProfile(pod, c)
	if err != nil || wanted == nil {
		return nil, "", err
	}
	if wanted.Type == v1.AppArmorProfileTypeUnconfined {
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_Unconfined,
		}, v1.DeprecatedAppArmorBetaProfileNameUnconfined, nil
	}
	if !enforced {
		return nil, "", containerError("Cannot enforce AppArmor: %v", errNoAppArmor)
	}
	switch wanted.Type {
	case v1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{
			ProfileType: runtimeapi.SecurityProfile_RuntimeDefault,
		}, v1.DeprecatedAppArmorBetaProfileRuntimeDefault, nil
	case v1.AppArmorProfileTypeLocalhost:
		if wanted.LocalhostProfile == nil || strings.TrimSpace(*wanted.LocalhostProfile) == "" {
			return nil, "", errors.New("missing localhost apparmor profile name")
		}
		name := *wanted.LocalhostProfile
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: name},
			v1.DeprecatedAppArmorBetaProfileNamePrefix + name, nil
	}
	return nil, "", fmt.Errorf("unknown apparmor profile type: %q", wanted.Type)
}

// apparmorProfile returns the profile that applies. The annotation comes before the pod's field,
// because pods from files may have only the annotation.
func apparmorProfile(pod *v1.Pod, c *v1.Container) (*v1.AppArmorProfile, error) {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile, nil
	}
	if text, ok := pod.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; ok {
		name, local := strings.CutPrefix(text, v1.DeprecatedAppArmorBetaProfileNamePrefix)
		switch {
		case local:
			return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}, nil
		case text == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
			return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}, nil
		case text == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
			return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}, nil
		}
		return nil, fmt.Errorf("invalid AppArmor profile in annotation %s%s",
			v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix, c.Name)
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile, nil
	}
	return nil, nil
}
