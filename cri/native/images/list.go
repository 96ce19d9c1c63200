package images

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// pinnedLabel and pinnedValue exempt an image from garbage collection. They are those of
	// containerd's CRI plugin, so that one tool's pin is every tool's.
	pinnedLabel, pinnedValue = "io.cri-containerd.pinned", "pinned"
	// minIDPrefix is the shortest beginning of an ID that names an image, in hexadecimal digits.
	minIDPrefix = 4
)

// facts are what an image's content says. The content never changes.
type facts struct {
	id       digest.Digest // of the config
	size     int64         // bytes of the config and the compressed layers
	settings ocispec.ImageConfig
	layers   []digest.Digest // of the uncompressed layers
}

// image is one image with all its names.
type image struct {
	facts
	named         images.Image // one of its names in containerd
	names         []string     // in containerd
	tags, digests []string     // as the CRI shows them
	pinned        bool
}

// all returns the images by ID. It leaves out names whose content is not there, or is not of this
// machine's platform, or is too large: nobody can run them.
func (s *Service) all(ctx context.Context) (map[digest.Digest]*image, error) {
	named, err := s.client.ImageService().List(ctx)
	if err != nil {
		return nil, err
	}
	out := map[digest.Digest]*image{}
	used := map[digest.Digest]bool{}
	for _, n := range named {
		known, err := s.factsOf(ctx, n)
		if errdefs.IsNotFound(err) || errdefs.IsInvalidArgument(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read image %s: %w", n.Name, err)
		}
		used[n.Target.Digest] = true
		img := out[known.id]
		if img == nil {
			img = &image{facts: known, named: n}
			out[known.id] = img
		}
		img.add(n)
		img.pinned = img.pinned || n.Name == s.cfg.Keep
	}
	s.mu.Lock()
	maps.DeleteFunc(s.facts, func(d digest.Digest, _ facts) bool { return !used[d] })
	s.mu.Unlock()
	return out, nil
}

// add gives an image one more name. A name that is no reference, such as an image's ID, is known to
// containerd alone.
func (i *image) add(n images.Image) {
	i.names = append(i.names, n.Name)
	i.pinned = i.pinned || n.Labels[pinnedLabel] == pinnedValue
	ref, err := reference.ParseDockerRef(n.Name)
	if err != nil || ref.String() != n.Name {
		return
	}
	if _, ok := ref.(reference.Digested); ok {
		i.digests = append(i.digests, n.Name)
	} else {
		i.tags = append(i.tags, n.Name)
	}
}

// factsOf reads a manifest and its config, once.
func (s *Service) factsOf(ctx context.Context, named images.Image) (facts, error) {
	s.mu.Lock()
	known, ok := s.facts[named.Target.Digest]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	known, err := readFacts(ctx, client.NewImage(s.client, named))
	if err != nil {
		return facts{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts[named.Target.Digest] = known
	return known, nil
}

func readFacts(ctx context.Context, img client.Image) (facts, error) {
	store := metadata{img.ContentStore()}
	manifest, err := images.Manifest(ctx, store, img.Target(), img.Platform())
	if err != nil {
		return facts{}, err
	}
	data, err := content.ReadBlob(ctx, store, manifest.Config)
	if err != nil {
		return facts{}, err
	}
	var config struct {
		Config ocispec.ImageConfig `json:"config"`
		RootFS ocispec.RootFS      `json:"rootfs"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return facts{}, fmt.Errorf("config %s: %w: %w", manifest.Config.Digest, err, errdefs.ErrInvalidArgument)
	}
	known := facts{
		id: manifest.Config.Digest, size: manifest.Config.Size, settings: config.Config, layers: config.RootFS.DiffIDs,
	}
	for _, layer := range manifest.Layers {
		known.size += layer.Size
	}
	return known, nil
}

// ListImages returns all images, by ID.
func (s *Service) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found, err := s.all(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	var out []*runtimeapi.Image
	for _, img := range found {
		out = append(out, img.message())
	}
	slices.SortFunc(out, func(a, b *runtimeapi.Image) int { return cmp.Compare(a.Id, b.Id) })
	return out, nil
}

// ImageStatus returns an image by name, by ID, or by the beginning of an ID that no other image
// has. It returns nil without an error if there is none.
func (s *Service) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	img, err := s.find(ctx, spec.GetImage())
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return img.message(), nil
}

// find returns errdefs.ErrNotFound if there is no such image.
func (s *Service) find(ctx context.Context, name string) (*image, error) {
	found, err := s.all(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for image %s: %w", name, err)
	}
	if img := match(found, name); img != nil {
		return img, nil
	}
	return nil, fmt.Errorf("image %s: %w", name, errdefs.ErrNotFound)
}

// match returns the image of a name, nil if there is none or if the beginning of an ID is that of
// two.
func match(found map[digest.Digest]*image, name string) *image {
	hex := strings.TrimPrefix(name, digest.SHA256.String()+":")
	if img := found[digest.NewDigestFromEncoded(digest.SHA256, hex)]; img != nil {
		return img
	}
	if ref, err := reference.ParseDockerRef(name); err == nil {
		for _, img := range found {
			if slices.Contains(img.names, ref.String()) {
				return img
			}
		}
	}
	if len(hex) < minIDPrefix {
		return nil
	}
	var only *image
	for id, img := range found {
		if strings.HasPrefix(id.Encoded(), hex) {
			if only != nil {
				return nil
			}
			only = img
		}
	}
	return only
}

// message returns the image in the CRI's form.
func (i *image) message() *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id: i.id.String(), RepoTags: slices.Sorted(slices.Values(i.tags)),
		RepoDigests: slices.Sorted(slices.Values(i.digests)), Size: uint64(max(i.size, 1)), Pinned: i.pinned,
		Spec: &runtimeapi.ImageSpec{Image: i.id.String()},
	}
	user, _, _ := strings.Cut(i.settings.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	} else if user != "" {
		out.Username = user
	} else {
		out.Uid = &runtimeapi.Int64Value{}
	}
	return out
}
