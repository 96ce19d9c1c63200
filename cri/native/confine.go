package native

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/contrib/apparmor"
	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// appArmorProfile is the name of the default profile, which is loaded when it is first needed.
const appArmorProfile = "berth-default"

// withConfinement sets the seccomp and AppArmor profiles. It must come after the capabilities,
// because the default seccomp profile depends on them. No seccomp profile means none, and no
// AppArmor profile means the default, as the CRI says of its older fields.
func withConfinement(syscalls, armor *runtimeapi.SecurityProfile) oci.SpecOpts {
	return func(ctx context.Context, c oci.Client, container *containers.Container, s *oci.Spec) error {
		profile, err := seccompProfile(syscalls, s)
		if err != nil {
			return err
		}
		s.Linux.Seccomp = profile
		return setAppArmor(ctx, c, container, s, armor)
	}
}

func seccompProfile(asked *runtimeapi.SecurityProfile, s *oci.Spec) (*specs.LinuxSeccomp, error) {
	switch {
	case asked == nil || asked.GetProfileType() == runtimeapi.SecurityProfile_Unconfined:
		return nil, nil
	case asked.GetProfileType() == runtimeapi.SecurityProfile_RuntimeDefault:
		return seccomp.DefaultProfile(s), nil
	}
	return localSeccomp(asked)
}

// localSeccomp reads a seccomp profile of the node.
func localSeccomp(asked *runtimeapi.SecurityProfile) (*specs.LinuxSeccomp, error) {
	data, err := os.ReadFile(asked.GetLocalhostRef())
	if err != nil {
		return nil, fmt.Errorf("read the seccomp profile: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	profile := &specs.LinuxSeccomp{}
	if err := json.Unmarshal(data, profile); err != nil {
		return nil, fmt.Errorf("read the seccomp profile %s: %w: %w", asked.GetLocalhostRef(), err,
			errdefs.ErrInvalidArgument)
	}
	return profile, nil
}

func setAppArmor(
	ctx context.Context, c oci.Client, container *containers.Container, s *oci.Spec, asked *runtimeapi.SecurityProfile,
) error {
	localhost := asked.GetProfileType() == runtimeapi.SecurityProfile_Localhost
	switch {
	case asked.GetProfileType() == runtimeapi.SecurityProfile_Unconfined:
		return nil
	case !hasAppArmor() && localhost:
		return fmt.Errorf("the AppArmor profile %q is asked for, but the node has no AppArmor: %w",
			asked.GetLocalhostRef(), errdefs.ErrInvalidArgument)
	case !hasAppArmor():
		return nil
	case localhost:
		return apparmor.WithProfile(asked.GetLocalhostRef())(ctx, c, container, s)
	}
	return apparmor.WithDefaultProfile(appArmorProfile)(ctx, c, container, s)
}

// hasAppArmor reports whether the kernel confines by AppArmor.
func hasAppArmor() bool {
	enabled, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(enabled), "Y")
}
