package stats

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/cri"
)

// runtimeTimeout bounds requests to the runtime. No request waits for longer than [patience].
const runtimeTimeout = 10 * time.Second

// disks are where the runtime has images and writable layers.
type disks struct {
	// stats are nil if the runtime does not tell.
	stats *statsapi.RuntimeStats
	// images and layers are the devices; nil if they are not known.
	images, layers *uint64
}

// disksOf wants to know where images and writable layers are, and what they take now.
func (c *Collector) disksOf() wanted[struct{}, disks] {
	return c.disks.want(struct{}{}, 0, func(ctx context.Context) (disks, error) {
		ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
		defer cancel()
		info, err := c.deps.Runtime.ImageFsInfo(ctx)
		if err != nil {
			c.deps.Logger.Debug("the runtime does not tell what its images take", "err", err)
			return disks{}, nil
		}
		now := time.Now()
		images, layers := info.GetImageFilesystems(), info.GetContainerFilesystems()
		out := disks{
			stats:  &statsapi.RuntimeStats{ImageFs: runtimeFs(images, now), ContainerFs: runtimeFs(layers, now)},
			images: firstDevice(images),
			layers: firstDevice(layers),
		}
		if out.stats.ContainerFs == nil {
			out.stats.ContainerFs = out.stats.ImageFs
		}
		return out, nil
	})
}

// layer is what a container's writable layer takes, and its device. known is false if the runtime
// has the container, but has not measured the layer.
type layer struct {
	known  bool
	used   size
	device string
}

// layersOf wants the layers of a pod's containers, or of all containers if the pod is empty, by
// their ids. The runtime asks the shim of each container, so it is to be asked rarely.
func (c *Collector) layersOf(pod types.UID, valid time.Duration) wanted[types.UID, map[string]layer] {
	return c.layers.want(pod, valid, func(ctx context.Context) (map[string]layer, error) {
		ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
		defer cancel()
		var filter *runtimeapi.ContainerStatsFilter
		if pod != "" {
			filter = &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{cri.LabelPodUID: string(pod)}}
		}
		list, err := c.deps.Runtime.ListContainerStats(ctx, filter)
		if err != nil {
			c.deps.Logger.Debug("the runtime does not tell what containers take", "uid", pod, "err", err)
			return nil, err
		}
		names, out := c.devices(), make(map[string]layer, len(list))
		for _, s := range list {
			own := s.GetWritableLayer()
			out[s.GetAttributes().GetId()] = layer{
				known:  own != nil,
				used:   size{bytes: own.GetUsedBytes().GetValue(), inodes: own.GetInodesUsed().GetValue()},
				device: deviceName(names, own.GetFsId().GetMountpoint()),
			}
		}
		return out, nil
	})
}

// deviceName returns the path of the block device of a mount point; empty if it has none.
func deviceName(names map[string]string, path string) string {
	device, ok := deviceOf(path)
	if !ok {
		return ""
	}
	return names[fmt.Sprintf("%d:%d", unix.Major(device), unix.Minor(device))]
}

// firstDevice returns the device of the first file system that can be read; nil if there is none.
func firstDevice(list []*runtimeapi.FilesystemUsage) *uint64 {
	for _, f := range list {
		if device, ok := deviceOf(f.GetFsId().GetMountpoint()); ok {
			return &device
		}
	}
	return nil
}

// deviceOf returns the device of a path.
func deviceOf(path string) (device uint64, ok bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, false
	}
	return st.Dev, true
}

// runtimeFs returns the space of the runtime's file system, and how much of it the runtime uses.
func runtimeFs(list []*runtimeapi.FilesystemUsage, at time.Time) *statsapi.FsStats {
	for _, f := range list {
		if host := fileSystem(f.GetFsId().GetMountpoint(), at); host != nil {
			return within(host, size{bytes: f.GetUsedBytes().GetValue(), inodes: f.GetInodesUsed().GetValue()}, true)
		}
	}
	return nil
}

// ImageFs returns the space of the disk on which the runtime has its images, as a kubelet does: the
// first one, if the runtime has several. Capacity and available bytes are missing if the disk is
// not to be seen from here.
func (c *Collector) ImageFs(ctx context.Context) (*statsapi.FsStats, error) {
	info, err := c.deps.Runtime.ImageFsInfo(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for the image filesystem: %w", err)
	}
	list := info.GetImageFilesystems()
	if len(list) == 0 {
		return nil, errors.New("imageFs information is unavailable")
	}
	now := time.Now()
	if fs := runtimeFs(list[:1], now); fs != nil {
		return fs, nil
	}
	return &statsapi.FsStats{Time: metav1.NewTime(now), UsedBytes: new(list[0].GetUsedBytes().GetValue())}, nil
}
