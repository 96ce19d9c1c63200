package fake

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image is an image that the node has or could have.
type Image struct {
	// Name is the reference by which it is pulled. As in containerd, "busybox" means
	// docker.io/library/busybox:latest.
	Name string
	// Present reports whether the node has the image.
	Present bool
	// Size is in bytes.
	Size uint64
	// UID and Username are the image's user. UID is used if Username is empty.
	UID      int64
	Username string
	// Pinned keeps garbage collectors from removing the image, as for the pause image.
	Pinned bool
	// PullTime is how long a pull takes. PullErr makes the pull fail.
	PullTime time.Duration
	PullErr  error
}

// image is an image with its names. The node's lock guards it.
type image struct {
	Image
	ref, id string
}

func newImage(i Image) *image {
	ref := normalize(i.Name)
	return &image{Image: i, ref: ref, id: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("config "+ref)))}
}

// repoDigest is the image's name with its digest.
func (i *image) repoDigest() string {
	if strings.Contains(i.ref, "@") {
		return i.ref
	}
	return fmt.Sprintf("%s@sha256:%x", repository(i.ref), sha256.Sum256([]byte("manifest "+i.ref)))
}

func (i *image) status() *runtimeapi.Image {
	status := &runtimeapi.Image{
		Id: i.id, RepoDigests: []string{i.repoDigest()}, Size: i.Size, Pinned: i.Pinned, Username: i.Username,
	}
	if !strings.Contains(i.ref, "@") {
		status.RepoTags = []string{i.ref}
	}
	if i.Username == "" {
		status.Uid = &runtimeapi.Int64Value{Value: i.UID}
	}
	return status
}

// SetImage adds an image, or replaces the image with that name.
func (r *Runtime) SetImage(i Image) {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	known := newImage(i)
	r.node.images[known.ref] = known
}

// ListImages returns the images that the node has, sorted by name.
func (r *Runtime) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	n := r.node
	return call(ctx, r, Call{Method: "ListImages", Request: &runtimeapi.ListImagesRequest{}},
		func(context.Context) ([]*runtimeapi.Image, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			var list []*runtimeapi.Image
			for _, ref := range sortedKeys(n.images) {
				if i := n.images[ref]; i.Present {
					list = append(list, i.status())
				}
			}
			return list, nil
		})
}

// ImageStatus returns the image that has this name or id; nil if the node does not have it.
func (r *Runtime) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	n := r.node
	about := Call{Method: "ImageStatus", ID: spec.GetImage(), Request: &runtimeapi.ImageStatusRequest{Image: spec}}
	return call(ctx, r, about, func(context.Context) (*runtimeapi.Image, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if i := n.imageOf(spec.GetImage()); i != nil && i.Present {
			return i.status(), nil
		}
		return nil, nil
	})
}

// PullImage adds an image to the node and returns the image's id.
func (r *Runtime) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	n := r.node
	name := spec.GetImage()
	about := Call{
		Method: "PullImage", ID: name,
		Request: &runtimeapi.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: sandbox},
	}
	return call(ctx, r, about, func(ctx context.Context) (string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		i := n.imageOf(name)
		switch {
		case i == nil && n.cfg.StrictImages:
			return "", errdefs.ErrNotFound.WithMessage(fmt.Sprintf("failed to pull and unpack image %q: "+
				"failed to resolve image: %s: not found",
				normalize(name), normalize(name)))
		case i == nil:
			i = newImage(Image{Name: name, Size: 1 << 20})
		}
		n.mu.Unlock()
		err := sleep(ctx, i.PullTime)
		n.mu.Lock()
		if err == nil {
			err = i.PullErr
		}
		if err != nil {
			return "", err
		}
		if now := n.images[i.ref]; now != nil {
			i = now
		}
		n.images[i.ref] = i
		i.Present = true
		return i.id, nil
	})
}

// RemoveImage removes an image from the node. Containers that use it keep running.
func (r *Runtime) RemoveImage(ctx context.Context, spec *runtimeapi.ImageSpec) error {
	n := r.node
	about := Call{Method: "RemoveImage", ID: spec.GetImage(), Request: &runtimeapi.RemoveImageRequest{Image: spec}}
	return do(ctx, r, about, func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if i := n.imageOf(spec.GetImage()); i != nil {
			i.Present = false
		}
		return nil
	})
}

// ImageFsInfo returns the sum of the images' sizes as the usage of one file system.
func (r *Runtime) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	n := r.node
	return call(ctx, r, Call{Method: "ImageFsInfo", Request: &runtimeapi.ImageFsInfoRequest{}},
		func(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			var size, count uint64
			for _, i := range n.images {
				if i.Present {
					size += i.Size
					count++
				}
			}
			usage := &runtimeapi.FilesystemUsage{
				Timestamp: time.Now().UnixNano(),
				FsId: &runtimeapi.FilesystemIdentifier{
					Mountpoint: "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs",
				},
				UsedBytes:  &runtimeapi.UInt64Value{Value: size},
				InodesUsed: &runtimeapi.UInt64Value{Value: count},
			}
			return &runtimeapi.ImageFsInfoResponse{
				ImageFilesystems:     []*runtimeapi.FilesystemUsage{usage},
				ContainerFilesystems: []*runtimeapi.FilesystemUsage{clone(usage)},
			}, nil
		})
}

// imageOf returns the image with a name, an id or a name with a digest, whether it is present or
// not. It returns nil if the image is not known. The caller holds the lock.
func (n *node) imageOf(name string) *image {
	if i := n.images[normalize(name)]; i != nil {
		return i
	}
	for _, i := range n.images {
		if i.id == name || i.repoDigest() == name || strings.TrimPrefix(i.id, "sha256:") == name {
			return i
		}
	}
	return nil
}

// normalize writes a reference in full, by Docker's rules.
func normalize(name string) string {
	if strings.HasPrefix(name, "sha256:") {
		return name
	}
	host, _, found := strings.Cut(name, "/")
	switch {
	case !found:
		name = "docker.io/library/" + name
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		name = "docker.io/" + name
	}
	if repository(name) == name {
		name += ":latest"
	}
	return name
}

// repository returns a reference without its tag and digest.
func repository(ref string) string {
	ref, _, _ = strings.Cut(ref, "@")
	if colon := strings.LastIndexByte(ref, ':'); colon > strings.LastIndexByte(ref, '/') {
		return ref[:colon]
	}
	return ref
}
