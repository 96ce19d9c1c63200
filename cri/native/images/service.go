package images

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/opencontainers/go-digest"

	"github.com/berthd/berth/cri"
)

const (
	// DefaultRegistryDir has a folder with a hosts.toml for each registry. It is containerd's own.
	DefaultRegistryDir = "/etc/containerd/certs.d"
	// DefaultMaxDownloads is how many layers of one image are downloaded at once, as in
	// containerd's CRI plugin.
	DefaultMaxDownloads = 3
	// DefaultStall is how long a registry may send nothing, as in containerd's CRI plugin.
	DefaultStall = 5 * time.Minute
)

// Config says how images are pulled. Zero values mean the defaults.
type Config struct {
	// RegistryDir has a folder with a hosts.toml for each registry. Default [DefaultRegistryDir].
	RegistryDir string
	// Snapshotter unpacks the images. Default is containerd's overlayfs if it works there, else
	// native.
	Snapshotter string
	// MaxDownloads is how many layers of one image are downloaded at once. Default
	// [DefaultMaxDownloads].
	MaxDownloads int
	// Stall is how long a registry may send nothing before the pull fails. Default [DefaultStall].
	Stall time.Duration
	// Keep is the full name of an image that counts as pinned as soon as it is there.
	Keep string
	// Alone says that the caller holds a lock, so that only one such service of the namespace works at
	// a time. It can end what an earlier one has left; see [Service.EndLeases].
	Alone bool
}

// Service is the image service of one containerd namespace. Make one with [New], end it with
// [Service.Close].
type Service struct {
	cfg    Config
	client *client.Client
	pulls  joined

	mu sync.Mutex
	// facts are what was read of the images' content, by the digest of what a name leads to.
	facts map[digest.Digest]facts
	// usage is the space that committed snapshots take, by name. They never change.
	usage map[string]usage
	// disk is where the snapshots are; nil until it was asked for.
	disk *disk
}

// New returns the image service of the client's default namespace. It makes no call. The caller
// closes the client after [Service.Close].
func New(cfg Config, containerd *client.Client) *Service {
	if cfg.RegistryDir == "" {
		cfg.RegistryDir = DefaultRegistryDir
	}
	if cfg.MaxDownloads <= 0 {
		cfg.MaxDownloads = DefaultMaxDownloads
	}
	if cfg.Stall <= 0 {
		cfg.Stall = DefaultStall
	}
	return &Service{
		cfg: cfg, client: containerd, facts: map[digest.Digest]facts{}, usage: map[string]usage{},
		pulls: joined{calls: map[string]*call{}},
	}
}

// bounded gives a context without a deadline one, as package cri promises.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, cri.DefaultRequestTimeout)
}

// Close ends every pull and waits for it.
func (s *Service) Close() { s.pulls.close() }

// disk is where a snapshotter keeps its snapshots.
type disk struct{ snapshotter, root string }

// snapshots returns the snapshotter to use and its directory.
func (s *Service) snapshots(ctx context.Context) (disk, error) {
	s.mu.Lock()
	known := s.disk
	s.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	found, err := s.findSnapshotter(ctx)
	if err != nil {
		return disk{}, err
	}
	s.mu.Lock()
	s.disk = &found
	s.mu.Unlock()
	return found, nil
}

// findSnapshotter asks containerd for the configured snapshotter, or for the first of its own that
// works.
func (s *Service) findSnapshotter(ctx context.Context) (disk, error) {
	candidates := []string{"overlayfs", "native"}
	if s.cfg.Snapshotter != "" {
		candidates = []string{s.cfg.Snapshotter}
	}
	resp, err := s.client.IntrospectionService().Plugins(ctx, "type==io.containerd.snapshotter.v1")
	if err != nil {
		return disk{}, fmt.Errorf("ask containerd for its snapshotters: %w", err)
	}
	for _, name := range candidates {
		for _, p := range resp.GetPlugins() {
			if p.GetID() == name && p.GetInitErr() == nil {
				return disk{snapshotter: name, root: p.GetExports()["root"]}, nil
			}
		}
	}
	return disk{}, fmt.Errorf("containerd has no snapshotter %q that works: see \"ctr plugins ls\"", candidates)
}
