package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/errdefs"
	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/opencontainers/image-spec/identity"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/native/images"
)

// snapshotReference begins the label by which a container keeps a snapshot from containerd's
// garbage collection. The name of the snapshotter follows, and after a slash anything.
const snapshotReference = "containerd.io/gc.ref.snapshot."

// imageVolumes are the images that a container mounts. The n-th of them is a read-only snapshot of
// its own, mounted in the container's directory of volumes. Both are known by the container's ID
// and by n, so that they can be removed without a record of them.
type imageVolumes struct {
	runtime *Runtime
	id      string
	// labels are those that the container must have.
	labels map[string]string
	count  int
}

// volumeDir is where the images that a container mounts are mounted on the node.
func (r *Runtime) volumeDir(id string) string { return filepath.Join(r.cfg.StateDir, "volumes", id) }

// volumeKey is the name of the snapshot of a container's n-th image.
func volumeKey(id string, n int) string { return id + "-volume-" + strconv.Itoa(n) }

// hasImages reports whether a container mounts images.
func hasImages(config *runtimeapi.ContainerConfig) bool {
	for _, m := range config.GetMounts() {
		if m.GetImage().GetImage() != "" {
			return true
		}
	}
	return false
}

// mount mounts the image of a mount on the node, and returns the path of what the container gets.
func (v *imageVolumes) mount(ctx context.Context, m *runtimeapi.Mount) (string, error) {
	name := m.GetImage().GetImage()
	img, err := v.runtime.Use(ctx, name)
	if err != nil {
		// The class of a missing image would say that the sandbox is missing.
		return "", classify.As(errdefs.ErrFailedPrecondition, fmt.Sprintf("image %s: %v", name, err))
	}
	n, key := v.count, volumeKey(v.id, v.count)
	v.count++
	at := filepath.Join(v.runtime.volumeDir(v.id), strconv.Itoa(n))
	if err := v.mountView(ctx, img, key, at, m); err != nil {
		return "", fmt.Errorf("image %s: %w", name, err)
	}
	v.labels[snapshotReference+img.Snapshotter+"/"+strconv.Itoa(n)] = key
	return inImage(at, m.GetImageSubPath())
}

// mountView makes a read-only snapshot of an image, and mounts it for a mount of the container, or
// for nobody in it.
func (v *imageVolumes) mountView(
	ctx context.Context, img *images.Usable, key, at string, m *runtimeapi.Mount,
) error {
	layers, err := img.RootFS(ctx)
	if err != nil {
		return err
	}
	mounts, err := v.runtime.client.SnapshotService(img.Snapshotter).View(ctx, key, identity.ChainID(layers).String())
	if err != nil {
		return foreign(fmt.Errorf("make a snapshot of it: %w", err))
	}
	if err := v.makeDir(at, m); err != nil {
		return err
	}
	for i := range mounts {
		mounts[i].Options = append(mounts[i].Options, "nosuid", "nodev")
	}
	if err := mount.All(mounts, at); err != nil {
		return fmt.Errorf("mount it: %w", err)
	}
	return nil
}

// makeDir makes the directory on which an image is mounted. Only root comes to it, who is another
// user in a container with a user namespace: an image may have programs that are setuid root, and
// secrets, and the node's users could use them.
func (v *imageVolumes) makeDir(at string, m *runtimeapi.Mount) error {
	dir := filepath.Dir(at)
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	for _, ids := range m.GetUidMappings() {
		if ids.GetContainerId() == 0 {
			if err := os.Chown(dir, int(ids.GetHostId()), -1); err != nil {
				return err
			}
		}
	}
	return os.Mkdir(at, 0o700)
}

// inImage returns a path of an image as the node sees it. Links of the image lead nowhere else, and
// nobody can change them any more.
func inImage(root, path string) (string, error) {
	found, err := securejoin.SecureJoin(root, path)
	if err == nil {
		_, err = os.Lstat(found)
	}
	if err != nil {
		return "", classify.Invalidf("the image has no %s: %v", path, err)
	}
	return found, nil
}

// removeVolumes unmounts the images that a container has mounted, and removes their snapshots. It
// succeeds if there are none. Of a container without a record only the mounts are removed:
// containerd collects the snapshots, because no container keeps them.
func (r *Runtime) removeVolumes(ctx context.Context, id string, config *runtimeapi.ContainerConfig) error {
	dir := r.volumeDir(id)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for the images that container %s mounts: %w", id, err)
	}
	for _, e := range entries {
		if err := unmountAndRemove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !hasImages(config) {
		return nil
	}
	for n := range config.GetMounts() {
		if err := r.RemoveLayer(ctx, volumeKey(id, n)); err != nil {
			return err
		}
	}
	return nil
}
