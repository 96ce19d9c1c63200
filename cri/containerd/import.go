package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/internal/store"
)

const (
	// managedLabel and managedValue mark the images that containerd's CRI plugin manages.
	managedLabel, managedValue = "io.cri-containerd.image", "managed"
	// pinnedLabel and pinnedValue exempt an image from garbage collection (containerd from 1.7).
	pinnedLabel, pinnedValue = "io.cri-containerd.pinned", "pinned"
	// snapshotterDir is the prefix of the directory of a containerd snapshotter; the snapshotter's
	// name follows.
	snapshotterDir = "io.containerd.snapshotter.v1."
	// importSettle limits the wait until the CRI shows an imported image.
	importSettle = 10 * time.Second
)

// Import implements [cri.ImageImporter]. The CRI has no such call, containerd has.
func (r *Runtime) Import(ctx context.Context, path string) ([]string, error) {
	start := time.Now()
	names, err := r.importArchive(ctx, path)
	if err != nil {
		err = fmt.Errorf("import images from %s: %w", path, err)
	}
	r.cfg.Observe("import_image", time.Since(start), err)
	return names, err
}

func (r *Runtime) importArchive(ctx context.Context, path string) ([]string, error) {
	version, err := r.Version(ctx)
	if err != nil {
		return nil, err
	}
	if name := version.GetRuntimeName(); name != runtimeName {
		return nil, classify.As(errdefs.ErrNotImplemented, fmt.Sprintf("runtime %q cannot import image archives", name))
	}
	containerd, err := client.NewWithConn(r.imageConn)
	if err != nil {
		return nil, err
	}
	ctx = namespaces.WithNamespace(ctx, criNamespace)
	imported, err := store.Import(ctx, containerd, path, store.As{
		Snapshotter: r.snapshotter, Labels: map[string]string{managedLabel: managedValue, pinnedLabel: pinnedValue},
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, image := range imported {
		if err := nameByID(ctx, containerd, image); err != nil {
			return nil, fmt.Errorf("name %s by its id: %w", image.Name, classify.Error("import_image", err))
		}
		names = append(names, image.Name)
	}
	return names, r.awaitImages(ctx, names)
}

// nameByID gives the image a second name: its ID, the digest of its config. The CRI plugin does so
// with images that it pulled itself, and finds images of volumes by that name. It skips images that
// have its label already. The second name is not pinned: it stays when a newer image takes the
// first name, and must not keep the old image then.
func nameByID(ctx context.Context, containerd *client.Client, image images.Image) error {
	config, err := client.NewImage(containerd, image).Config(ctx)
	if err != nil {
		return err
	}
	named := images.Image{
		Name: config.Digest.String(), Target: image.Target, Labels: map[string]string{managedLabel: managedValue},
	}
	if _, err := containerd.ImageService().Create(ctx, named); err != nil && !errdefs.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// snapshotter returns the name of the snapshotter that containerd's CRI plugin uses, or "" for
// containerd's default.
func (r *Runtime) snapshotter(ctx context.Context) string {
	info, err := r.ImageFsInfo(ctx)
	if err != nil {
		return ""
	}
	for _, fs := range info.GetImageFilesystems() {
		if name, ok := strings.CutPrefix(filepath.Base(fs.GetFsId().GetMountpoint()), snapshotterDir); ok {
			return name
		}
	}
	return ""
}

// awaitImages returns when the CRI shows the images, which is a moment after containerd has them.
func (r *Runtime) awaitImages(ctx context.Context, names []string) error {
	ctx, cancel := context.WithTimeout(ctx, importSettle)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, name := range names {
		for {
			image, err := r.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: name})
			if err == nil && image != nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("wait for the runtime to show %s: %w", name, errors.Join(ctx.Err(), err))
			case <-tick.C:
			}
		}
	}
	return nil
}
