package images

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// usage is the space that a snapshot takes.
type usage struct{ bytes, inodes int64 }

// ImageFsInfo returns where the images are, and what their unpacked layers take. What containers
// have written is not in it. Containerd measures each layer once.
func (s *Service) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	at, err := s.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	total, err := s.layers(ctx, s.client.SnapshotService(at.snapshotter))
	if err != nil {
		return nil, fmt.Errorf("measure the images of snapshotter %s: %w", at.snapshotter, err)
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: at.root},
		UsedBytes:  &runtimeapi.UInt64Value{Value: uint64(total.bytes)},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(total.inodes)},
	}}}, nil
}

// layers returns what all unpacked layers take together.
func (s *Service) layers(ctx context.Context, snapshotter snapshots.Snapshotter) (total usage, err error) {
	present := map[string]bool{}
	err = snapshotter.Walk(ctx, func(_ context.Context, info snapshots.Info) error {
		if info.Kind == snapshots.KindCommitted {
			present[info.Name] = true
		}
		return nil
	})
	if err != nil {
		return usage{}, err
	}
	for name := range present {
		one, err := s.layer(ctx, snapshotter, name)
		if err != nil {
			return usage{}, fmt.Errorf("snapshot %s: %w", name, err)
		}
		total.bytes += one.bytes
		total.inodes += one.inodes
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.usage, func(name string, _ usage) bool { return !present[name] })
	return total, nil
}

// layer measures a layer that was not measured before. A layer that is gone takes nothing.
func (s *Service) layer(ctx context.Context, snapshotter snapshots.Snapshotter, name string) (usage, error) {
	s.mu.Lock()
	known, ok := s.usage[name]
	s.mu.Unlock()
	if ok {
		return known, nil
	}
	measured, err := snapshotter.Usage(ctx, name)
	if errdefs.IsNotFound(err) {
		return usage{}, nil
	}
	if err != nil {
		return usage{}, err
	}
	known = usage{bytes: measured.Size, inodes: measured.Inodes}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage[name] = known
	return known, nil
}

// Layer returns what the container of a snapshot has written, nil if there is no such snapshot.
func (s *Service) Layer(ctx context.Context, snapshot string) (*runtimeapi.FilesystemUsage, error) {
	at, err := s.snapshots(ctx)
	if err != nil {
		return nil, err
	}
	measured, err := s.client.SnapshotService(at.snapshotter).Usage(ctx, snapshot)
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &runtimeapi.FilesystemUsage{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: at.root},
		UsedBytes:  &runtimeapi.UInt64Value{Value: uint64(measured.Size)},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(measured.Inodes)},
	}, nil
}

// RemoveLayer removes the snapshot of a container. It succeeds if there is none.
func (s *Service) RemoveLayer(ctx context.Context, snapshot string) error {
	at, err := s.snapshots(ctx)
	if err != nil {
		return err
	}
	err = s.client.SnapshotService(at.snapshotter).Remove(ctx, snapshot)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("remove the snapshot %s: %w", snapshot, err)
	}
	return nil
}
