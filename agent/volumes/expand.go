package volumes

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/agent/volumes/expand"
)

// grows reports whether a volume that a pod has must grow, now or later. Until the volume has
// grown, its old record is kept.
func (b *bringUp) grows(use *expand.Use) bool {
	if b.m.deps.Growth == nil || use.Had == nil {
		return false
	}
	wanted, _ := b.m.deps.Growth.Wanted(*use)
	return wanted
}

// grow expands a volume that is up beside the sync, and returns its mount with the time to look
// again. A failure is reported in events, and leaves the volume as it is. If the volume's driver is
// not registered at the moment, the volume waits for it: pods are notified when the driver comes.
func (b *bringUp) grow(v *csi.Volume, use *expand.Use, mount Mount) Mount {
	if use == nil || b.m.deps.Growth == nil {
		return mount
	}
	now := *use
	if now.Had == nil {
		now.Had = now.Volume // the record does not have the size that the volume came up with
	}
	wanted, when := b.m.deps.Growth.Wanted(now)
	if !wanted || !b.m.csi.HasDriver(v) {
		return mount
	}
	if time.Now().Before(when) {
		mount.Again = earlier(mount.Again, when)
		return mount
	}
	now.Expand = b.m.expand(v)
	do := func(ctx context.Context) error {
		return b.m.deps.Growth.Grow(ctx, now)
	}
	if b.dynamic.Slow == nil {
		_ = do(b.ctx) // an event has reported it
		return mount
	}
	if ended, _ := b.dynamic.Slow(csiKey+v.Name+"/growth", do); ended {
		mount.Again = earlier(mount.Again, time.Now()) // to begin the next try
	}
	return mount
}

// growFirst expands a volume before it is up, when nobody uses it yet.
func (b *bringUp) growFirst(ctx context.Context, v *csi.Volume, use *expand.Use) error {
	if use == nil || b.m.deps.Growth == nil {
		return nil
	}
	first := *use
	first.Had = nil
	if wanted, _ := b.m.deps.Growth.Wanted(first); !wanted {
		return nil
	}
	first.Expand = b.m.expand(v)
	err := b.m.deps.Growth.Grow(ctx, first)
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	operation := "MountVolume.Setup"
	if v.Block {
		operation = "MapVolume.MarkVolumeAsMounted"
	}
	return &csi.Failed{Operation: operation, While: "expanding volume", Err: err}
}

// expand asks a volume's driver to expand the volume.
func (m *Manager) expand(v *csi.Volume) func(context.Context, resource.Quantity) error {
	return func(ctx context.Context, size resource.Quantity) error { return m.csi.Expand(ctx, v, size) }
}

// earlier returns the earlier of two times. The zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
