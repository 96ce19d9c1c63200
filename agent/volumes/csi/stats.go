package csi

import (
	"context"
	"errors"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Stats asks a driver how full a pod's volume is. name is the name of the volume's directory, and
// block says that the volume is a block device. The result is nil if the volume is not on record,
// or if its driver does not report that.
func (n *Node) Stats(ctx context.Context, uid types.UID, name string, block bool) (*statsapi.FsStats, error) {
	k := key{name, block}
	r, err := n.heldRecord(uid, k)
	switch {
	case errors.Is(err, errDamaged):
		return nil, nil //nolint:nilnil // what is not known is not reported
	case err != nil || r == nil:
		return nil, err
	}
	driver, err := n.deps.Drivers.Get(r.Driver)
	if err != nil {
		return nil, err
	}
	c, err := n.deps.Drivers.connect(driver)
	if err != nil {
		return nil, err
	}
	defer c.close()
	can, err := c.capabilities(ctx)
	if err != nil || !can[reportsStats] {
		return nil, err
	}
	resp, err := bounded(ctx, func(ctx context.Context) (*csiapi.NodeGetVolumeStatsResponse, error) {
		return c.node.NodeGetVolumeStats(ctx,
			&csiapi.NodeGetVolumeStatsRequest{VolumeId: r.Handle, VolumePath: n.target(uid, k)})
	})
	if err != nil {
		return nil, err
	}
	return statsOf(resp, time.Now()), nil
}

// statsOf converts a driver's answer to the kubelet's form. The interface has 0 for a value that
// the driver does not know, if the total is not 0.
func statsOf(resp *csiapi.NodeGetVolumeStatsResponse, at time.Time) *statsapi.FsStats {
	out := &statsapi.FsStats{Time: metav1.NewTime(at)}
	for _, usage := range resp.GetUsage() {
		total, used, free := amount(usage.GetTotal()), amount(usage.GetUsed()), amount(usage.GetAvailable())
		switch usage.GetUnit() {
		case csiapi.VolumeUsage_BYTES:
			out.CapacityBytes, out.UsedBytes, out.AvailableBytes = total, used, free
		case csiapi.VolumeUsage_INODES:
			out.Inodes, out.InodesUsed, out.InodesFree = total, used, free
		}
	}
	return out
}

func amount(n int64) *uint64 { return new(uint64(max(n, 0))) }
