package native

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/berthd/berth/cri/internal/classify"
)

// withCDI adds what the node's CDI specs say of the devices that a config names, in its field or in
// annotations. The specs are read anew for each container, because vendors write them while the
// node runs. A spec that cannot be read matters only to containers that want its devices.
func (r *Runtime) withCDI(config *runtimeapi.ContainerConfig) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		_, names, err := cdi.ParseAnnotations(config.GetAnnotations())
		if err != nil {
			return classify.Invalidf("CDI devices of the annotations: %v", err)
		}
		slices.Sort(names)
		for _, d := range config.GetCDIDevices() {
			if !slices.Contains(names, d.GetName()) {
				names = append(names, d.GetName())
			}
		}
		return r.injectCDI(s, names)
	}
}

// injectCDI adds what the node's CDI specs say of devices.
func (r *Runtime) injectCDI(s *specs.Spec, names []string) error {
	if len(names) == 0 {
		return nil
	}
	dirs := r.cfg.CDISpecDirs
	if len(dirs) == 0 {
		dirs = cdi.DefaultSpecDirs
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return fmt.Errorf("read the CDI specs: %w", err)
	}
	if _, err := cache.InjectDevices(s, names...); err != nil {
		return classify.Invalidf("CDI devices: %v", errors.Join(err, unreadable(cache)))
	}
	return nil
}

// unreadable returns an error that names the specs that could not be read; nil if there are none.
func unreadable(cache *cdi.Cache) error {
	var errs []error
	failed := cache.GetErrors()
	for _, path := range slices.Sorted(maps.Keys(failed)) {
		errs = append(errs, fmt.Errorf("%s: %w", path, errors.Join(failed[path]...)))
	}
	return errors.Join(errs...)
}
