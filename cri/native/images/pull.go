package images

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
)

// PullImage pulls and unpacks an image, and returns its ID. Layers are downloaded in parallel, and
// those that are there already are not downloaded again. The login is sent to the image's registry
// alone, not to its mirrors, and to the server that the login names if it names one. PullImage has
// no deadline of its own, but it fails if the registry sends nothing for too long.
func (s *Service) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	ref, err := reference.ParseDockerRef(spec.GetImage())
	if err != nil {
		return "", classify.Invalidf("pull image %q: %v", spec.GetImage(), err)
	}
	key, err := keyOf(ref, auth)
	if err != nil {
		return "", fmt.Errorf("pull image %s: %w", ref, err)
	}
	id, err := s.pulls.do(ctx, key, func(ctx context.Context) (string, error) { return s.pull(ctx, ref, auth) })
	if err != nil {
		return "", fmt.Errorf("pull image %s: %w", ref, err)
	}
	return id, nil
}

// keyOf returns what a pull is known by: the image, and a digest of the login. Another login may
// not be allowed to have the image.
func keyOf(ref reference.Named, auth *runtimeapi.AuthConfig) (string, error) {
	login, err := proto.MarshalOptions{Deterministic: true}.Marshal(auth)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %x", ref, sha256.Sum256(login)), nil
}

func (s *Service) pull(ctx context.Context, ref reference.Named, auth *runtimeapi.AuthConfig) (string, error) {
	at, err := s.snapshots(ctx)
	if err != nil {
		return "", err
	}
	hosts, err := s.hosts(ctx, reference.Domain(ref), auth)
	if err != nil {
		return "", err
	}
	labels, err := s.pinOf(ctx, ref.String())
	if err != nil {
		return "", err
	}
	ctx, release, err := s.Leased(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	seen := &downloads{store: s.client.ContentStore()}
	opts := []client.RemoteOpt{
		client.WithResolver(docker.NewResolver(docker.ResolverOptions{Hosts: hosts})),
		client.WithPullUnpack,
		client.WithPullSnapshotter(at.snapshotter),
		client.WithMaxConcurrentDownloads(s.cfg.MaxDownloads),
		client.WithPullLabels(labels),
		client.WithImageHandler(images.HandlerFunc(seen.note)),
	}
	pulled, err := s.client.Pull(ctx, ref.String(), opts...)
	if errdefs.IsFailedPrecondition(err) {
		// The content is not that of its digest. An earlier pull may have left the rubbish.
		if forgot := seen.forget(ctx); forgot != nil {
			return "", errors.Join(err, forgot)
		}
		pulled, err = s.client.Pull(ctx, ref.String(), opts...)
	}
	if err != nil {
		return "", err
	}
	if err := s.nameByDigest(ctx, ref, pulled.Metadata()); err != nil {
		return "", err
	}
	known, err := s.factsOf(ctx, pulled.Metadata())
	if err != nil {
		return "", fmt.Errorf("read what was pulled: %w", err)
	}
	return known.id.String(), nil
}

// pinOf returns the label of the pin if an image of this name is pinned. The pull replaces the
// labels.
func (s *Service) pinOf(ctx context.Context, name string) (map[string]string, error) {
	present, err := s.client.ImageService().Get(ctx, name)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, fmt.Errorf("look whether it is pinned: %w", err)
	}
	if present.Labels[pinnedLabel] == pinnedValue {
		return map[string]string{pinnedLabel: pinnedValue}, nil
	}
	return nil, nil
}

// nameByDigest gives an image the name repository@digest, by which it is kept when its tag moves.
func (s *Service) nameByDigest(ctx context.Context, ref reference.Named, pulled images.Image) error {
	canonical, err := reference.WithDigest(reference.TrimNamed(ref), pulled.Target.Digest)
	if err != nil {
		return err
	}
	named := images.Image{Name: canonical.String(), Target: pulled.Target}
	_, err = s.client.ImageService().Create(ctx, named)
	if err != nil && !errdefs.IsAlreadyExists(err) {
		return fmt.Errorf("name it %s: %w", canonical, err)
	}
	return nil
}

// downloads are the names of a pull's downloads in containerd.
type downloads struct {
	store content.Store

	mu   sync.Mutex
	refs map[string]bool
}

// note is called for each part of the image before it is downloaded. It refuses what is too large.
func (d *downloads) note(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	if err := checkDownload(ctx, d.store, desc); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refs == nil {
		d.refs = map[string]bool{}
	}
	d.refs[remotes.MakeRefKey(ctx, desc)] = true
	return nil, nil
}

// forget makes containerd begin these downloads anew. A download that has failed is otherwise
// continued where it ended, also if what has arrived is wrong.
func (d *downloads) forget(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for ref := range d.refs {
		if err := d.store.Abort(ctx, ref); err != nil && !errdefs.IsNotFound(err) {
			return fmt.Errorf("forget the download %s: %w", ref, err)
		}
	}
	return nil
}
