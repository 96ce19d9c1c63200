package native

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// defaultBinary is what the shim runs if no program is configured.
	defaultBinary = "runc"
	// featuresTimeout bounds the question to an OCI runtime.
	featuresTimeout = 10 * time.Second
)

// askHandlers returns the handlers with what their OCI runtimes can do, the default first. An OCI
// runtime that does not say can do nothing special.
func (r *Runtime) askHandlers(ctx context.Context) []*runtimeapi.RuntimeHandler {
	names := slices.Sorted(maps.Keys(r.cfg.Handlers))
	if !slices.Contains(names, "") {
		names = slices.Insert(names, 0, "")
	}
	var out []*runtimeapi.RuntimeHandler
	for _, name := range names {
		handler := &runtimeapi.RuntimeHandler{Name: name, Features: &runtimeapi.RuntimeHandlerFeatures{}}
		binary := cmp.Or(r.cfg.Handlers[name].Binary, defaultBinary)
		if can, err := ask(ctx, binary); err != nil {
			r.cfg.Logger.Warn("an OCI runtime does not say what it can do: pods get no user namespaces and no recursive "+
				"read-only mounts by it", "handler", name, "error", err)
		} else {
			handler.Features = can
		}
		out = append(out, handler)
	}
	return out
}

// ask runs "features" of an OCI runtime (runtime-spec, features.md).
func ask(ctx context.Context, binary string) (*runtimeapi.RuntimeHandlerFeatures, error) {
	ctx, cancel := context.WithTimeout(ctx, featuresTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "features")
	cmd.WaitDelay = time.Second
	answer, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for its features: %w", binary, err)
	}
	var said features.Features
	if err := json.Unmarshal(answer, &said); err != nil {
		return nil, fmt.Errorf("read the features of %s: %w", binary, err)
	}
	return &runtimeapi.RuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: slices.Contains(said.MountOptions, "rro") && hasMountSetattr(),
		UserNamespaces:          hasUserNamespaces(said.Linux) && hasMountSetattr(),
	}, nil
}

// hasUserNamespaces reports whether an OCI runtime has what pods with users of their own need: user
// namespaces, and mounts whose IDs are mapped.
func hasUserNamespaces(linux *features.Linux) bool {
	if linux == nil || linux.MountExtensions == nil || linux.MountExtensions.IDMap == nil {
		return false
	}
	enabled := linux.MountExtensions.IDMap.Enabled
	return enabled != nil && *enabled && slices.Contains(linux.Namespaces, string(specs.UserNamespace))
}

// hasMountSetattr reports whether the kernel has mount_setattr(2) (from 5.12), by which mounts are
// read-only with all below them, and get mapped IDs.
func hasMountSetattr() bool {
	return !errors.Is(unix.MountSetattr(-1, "", 0, &unix.MountAttr{}), unix.ENOSYS)
}
