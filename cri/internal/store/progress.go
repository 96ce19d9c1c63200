package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/classify"
)

const (
	// sourceLabel is the prefix of a label of a blob; the registry's host follows. Containerd notes
	// in it which repositories the blob came from.
	sourceLabel = "containerd.io/distribution.source."
	// maxManifest is the largest manifest that is read, in bytes. Registries accept 4 MiB.
	maxManifest = 4 << 20
)

// PullProgress returns the progress of the pull of an image that began at since, by the content
// that containerd has in the namespace of the context. snapshotter returns the name of the
// snapshotter that unpacks the image. image is a full name. It costs several calls.
func PullProgress(
	ctx context.Context, containerd *client.Client, snapshotter func(context.Context) string, image string,
	since time.Time,
) (cri.PullProgress, error) {
	named, err := reference.ParseNamed(image)
	if err != nil {
		return cri.PullProgress{}, classify.Invalidf("%v", err)
	}
	content := containerd.ContentStore()
	coming, err := content.ListStatuses(ctx)
	if err != nil {
		return cri.PullProgress{}, err
	}
	manifest, err := manifestOf(ctx, content, named, since, coming)
	if err != nil {
		return cri.PullProgress{}, err
	}
	if manifest == nil {
		return cri.PullProgress{Activity: activity(coming)}, nil
	}
	p, err := progress(ctx, content, manifest, coming)
	if err == nil && p.Done >= p.Total {
		p.Unpacking, err = unpacks(ctx, containerd.SnapshotService(snapshotter(ctx)))
	}
	return p, err
}

// unpacks reports whether containerd is unpacking a layer, of any image.
func unpacks(ctx context.Context, snapshotter snapshots.Snapshotter) (found bool, err error) {
	prefix := snapshots.UnpackKeyPrefix + "-"
	err = snapshotter.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		found = found || strings.HasPrefix(info.Name, prefix)
		return nil
	}, "kind==active")
	return found, err
}

// activity returns a checksum of all that is arriving, of any image.
func activity(coming []content.Status) uint64 {
	sum := fnv.New64a()
	for _, s := range coming {
		fmt.Fprintln(sum, s.Ref, s.Offset)
	}
	return sum.Sum64()
}

// progress sums up the parts of an image: complete ones, and the arrived bytes of others.
func progress(
	ctx context.Context, store content.Store, manifest *ocispec.Manifest, coming []content.Status,
) (cri.PullProgress, error) {
	var p cri.PullProgress
	counted := map[digest.Digest]bool{}
	for _, part := range append([]ocispec.Descriptor{manifest.Config}, manifest.Layers...) {
		if counted[part.Digest] {
			continue
		}
		counted[part.Digest] = true
		p.Total += part.Size
		switch _, err := store.Info(ctx, part.Digest); {
		case err == nil:
			p.Done += part.Size
		case errdefs.IsNotFound(err):
			offset, _ := find(part.Digest, coming)
			p.Done += offset
		default:
			return p, err
		}
	}
	p.Activity = uint64(p.Done) + 1 // differs from the number before the manifest arrived
	return p, nil
}

// find returns how much of a part has arrived, and whether it is arriving now. containerd names
// what it fetches by kind and digest.
func find(part digest.Digest, coming []content.Status) (int64, bool) {
	for _, s := range coming {
		if strings.HasSuffix(s.Ref, "-"+part.String()) {
			return s.Offset, true
		}
	}
	return 0, false
}

// manifestOf returns the manifest of the image that is being pulled, nil if it has not arrived. It
// looks at the manifests from the image's repository that arrived, or were found in the store,
// since the pull began, and at those with a part that is arriving now. It returns the latest of
// them. Containerd records neither a registry's port nor a tag. So two pulls at the same time can
// be mistaken for each other: two from one repository, or from repositories with one name on two
// ports of a host.
func manifestOf(
	ctx context.Context, store content.Store, image reference.Named, since time.Time, coming []content.Status,
) (*ocispec.Manifest, error) {
	filter, err := sourceFilter(image)
	if err != nil {
		return nil, err
	}
	var candidates []content.Info
	err = store.Walk(ctx, func(info content.Info) error {
		if info.Size <= maxManifest {
			candidates = append(candidates, info)
		}
		return nil
	}, filter)
	if err != nil {
		return nil, err
	}
	var latest *ocispec.Manifest
	var at time.Time
	for _, info := range candidates {
		seen := info.CreatedAt
		if info.UpdatedAt.After(seen) { // containerd 1.6 does not report it
			seen = info.UpdatedAt
		}
		if latest != nil && seen.Before(at) {
			continue
		}
		m, err := readManifest(ctx, store, info)
		if err != nil && !errdefs.IsNotFound(err) {
			return nil, err
		}
		if m != nil && (!seen.Before(since) || partly(m, coming)) {
			latest, at = m, seen
		}
	}
	return latest, nil
}

// partly reports whether a layer of the image is arriving now.
func partly(m *ocispec.Manifest, coming []content.Status) bool {
	for _, layer := range m.Layers {
		if _, ok := find(layer.Digest, coming); ok {
			return true
		}
	}
	return false
}

// readManifest reads a blob that may be an image's manifest. It returns nil if the blob is
// something else.
func readManifest(ctx context.Context, store content.Store, info content.Info) (*ocispec.Manifest, error) {
	blob, err := store.ReaderAt(ctx, ocispec.Descriptor{Digest: info.Digest, Size: info.Size})
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	first := make([]byte, 1)
	if n, _ := blob.ReadAt(first, 0); n == 0 || first[0] != '{' {
		return nil, nil
	}
	data := make([]byte, blob.Size())
	if _, err := blob.ReadAt(data, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var m ocispec.Manifest
	if json.Unmarshal(data, &m) != nil || m.Config.Digest == "" || len(m.Layers) == 0 {
		return nil, nil
	}
	return &m, nil
}

// sourceFilter selects the blobs that came from the image's repository.
func sourceFilter(image reference.Named) (string, error) {
	host, err := url.Parse("dummy://" + reference.Domain(image))
	if err != nil {
		return "", err
	}
	repository := "(^|,)" + regexp.QuoteMeta(reference.Path(image)) + "(,|$)"
	return fmt.Sprintf("labels.%q~=%q", sourceLabel+host.Hostname(), repository), nil
}
