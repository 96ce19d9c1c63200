package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	copying "github.com/containerd/continuity/fs"
	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/internal/beneath"
)

// declaredDir has the volumes that the image of a container declares (VOLUME): a directory for
// each, with what the image has there. The container writes to it instead of to its own layer.
func (r *Runtime) declaredDir(id string) string { return filepath.Join(r.cfg.RootDir, "volumes", id) }

// kernelPlaces have, with what is below them, what the kernel and the OCI runtime put there: an
// image declares no volume in them.
var kernelPlaces = []string{"/dev", "/proc", "/sys"}

// declaredPlaces returns where a container gets the volumes that its image declares: not where it
// has another mount.
func declaredPlaces(declared map[string]struct{}, taken []specs.Mount) []string {
	var places []string
	for place := range declared {
		place = filepath.Join("/", place)
		within := func(top string) bool { return place == top || strings.HasPrefix(place, top+"/") }
		if place != "/" && !slices.ContainsFunc(kernelPlaces, within) && !mounted(taken, place) {
			places = append(places, place)
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// withDeclaredVolumes makes the volumes that a container's image declares, and mounts them. It
// comes after all other mounts. The files have the owners that they have in the image, so in a user
// namespace the mount maps them.
func (r *Runtime) withDeclaredVolumes(sb *sandbox, c *container, img *images.Usable, has labels) oci.SpecOpts {
	return func(ctx context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		places := declaredPlaces(img.Settings.Volumes, s.Mounts)
		if len(places) == 0 {
			return nil
		}
		dir, err := r.makeDeclared(ctx, c.id, img, places)
		if err != nil {
			return err
		}
		if err := r.selinux.relabel(ctx, dir, has.Mount); err != nil {
			return fmt.Errorf("relabel the volumes of the image for SELinux: %w", err)
		}
		ids := userns(sb.namespaces())
		options := []string{"rbind", "rprivate", "rw"}
		if ids.own() {
			options = append(options, "ridmap")
		}
		for i, place := range places {
			s.Mounts = append(s.Mounts, specs.Mount{
				Destination: place, Type: "bind", Source: filepath.Join(dir, strconv.Itoa(i)), Options: options,
				UIDMappings: ids.uids, GIDMappings: ids.gids,
			})
		}
		sortMounts(s.Mounts)
		return nil
	}
}

// makeDeclared makes a container's directory of declared volumes, and returns its path without
// links. The volumes in it are numbered. Only root comes to them: they may have programs that are
// setuid root.
func (r *Runtime) makeDeclared(
	ctx context.Context, id string, img *images.Usable, places []string,
) (dir string, err error) {
	if err := os.MkdirAll(r.declaredDir(id), 0o700); err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(r.declaredDir(id)); err != nil {
		return "", err
	}
	// Not of the container's own snapshot, whose files may have the IDs of a user namespace.
	view, at, key := &imageVolumes{runtime: r, id: id}, filepath.Join(r.volumeDir(id), "declared"), id+"-declared"
	defer func() {
		undo, cancel := undoing(ctx)
		defer cancel()
		err = errors.Join(err, unmountAndRemove(at), r.RemoveLayer(undo, key))
	}()
	if err := view.mountView(ctx, img, key, at, nil); err != nil {
		return "", err
	}
	for i, place := range places {
		if err := copyDeclared(filepath.Join(dir, strconv.Itoa(i)), at, place); err != nil {
			return "", fmt.Errorf("make the volume %s of the image: %w", place, err)
		}
	}
	return dir, nil
}

// copyDeclared makes a directory with what an image has at a place: with its owners, modes and
// extended attributes. Links of the image lead nowhere else. If the image has nothing there, the
// directory is empty.
func copyDeclared(dir, image, place string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	source, err := securejoin.SecureJoin(image, place)
	if err != nil {
		return err
	}
	info, err := os.Lstat(source)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.Chmod(dir, 0o755) // whatever the umask is
	case err != nil:
		return err
	case !info.IsDir():
		return classify.Invalidf("it is no directory there")
	}
	return copying.CopyDir(dir, source, copying.WithXAttrExclude(selinuxAttribute))
}

// removeDeclared removes the declared volumes of a container. It succeeds if there are none.
func (r *Runtime) removeDeclared(ctx context.Context, id string) error {
	parent, err := os.Open(filepath.Dir(r.declaredDir(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	if err := beneath.Remove(ctx, int(parent.Fd()), id); err != nil {
		return fmt.Errorf("remove the volumes that the image of container %s declares: %w", id, err)
	}
	return nil
}
