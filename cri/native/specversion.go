package native

import (
	"context"
	"slices"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// oldVersion is the version of the runtime-spec that says all that a usual container needs.
const oldVersion = "1.0.2"

// withVersion lets a spec that uses nothing newer say oldVersion: crun before 1.9, as in Debian 12,
// refuses later versions whatever is in the spec. It must come last.
func withVersion(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	mapped := func(m specs.Mount) bool {
		return len(m.UIDMappings)+len(m.GIDMappings) > 0 || slices.Contains(m.Options, "rro")
	}
	if slices.ContainsFunc(s.Mounts, mapped) || len(s.Linux.NetDevices) > 0 || s.Linux.IntelRdt != nil ||
		s.Linux.Seccomp != nil && s.Linux.Seccomp.ListenerPath != "" {
		return nil
	}
	s.Version = oldVersion
	return nil
}
