package stats

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/cri"
)

// NodeUsage is what the node has left.
type NodeUsage struct {
	statsapi.NodeStats
	// Disks say which file systems the node has; nil while the runtime does not tell.
	Disks *Disks
}

// Disks say which of the node's file systems are one.
type Disks struct {
	// ImageFs says that images are on another file system than the agent's root directory. SplitFs
	// says that writable layers are on another file system than images.
	ImageFs, SplitFs bool
}

// Node returns what the node has left, without rates. It asks the runtime only where images are,
// and walks through no directory, so it can be called often.
func (c *Collector) Node(ctx context.Context) NodeUsage {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.readNode()
	out := NodeUsage{NodeStats: c.nodeStats(&n, false)}
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	info := c.imageDisks(ctx, &out.NodeStats, n.at)
	root, known := deviceOf(c.cfg.RootDir)
	images, found := firstDevice(info.GetImageFilesystems())
	if !known || !found {
		return out
	}
	out.Disks = &Disks{ImageFs: images != root}
	if layers, found := firstDevice(info.GetContainerFilesystems()); found {
		out.Disks.SplitFs = layers != images
	}
	return out
}

// firstDevice returns the device of the first file system that can be read.
func firstDevice(list []*runtimeapi.FilesystemUsage) (device uint64, ok bool) {
	for _, f := range list {
		if device, ok = deviceOf(f.GetFsId().GetMountpoint()); ok {
			return device, true
		}
	}
	return 0, false
}

// deviceOf returns the device of a path.
func deviceOf(path string) (device uint64, ok bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, false
	}
	return st.Dev, true
}

// Storage returns how much local storage pods use: their volumes and logs, and the writable layers
// of the pods for which layers is true. It leaves out pods that have no cgroup. Directories are
// measured at most once in [sizePeriod]; a pod's layers take a call to the shim of each container.
func (c *Collector) Storage(ctx context.Context, layers map[types.UID]bool) map[types.UID]*statsapi.PodStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begin(time.Now())
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	var node statsapi.NodeStats
	node.Fs = fileSystem(c.cfg.RootDir, time.Now())
	own := map[string]*runtimeapi.ContainerStats{}
	var readings []podReading
	all := c.deps.Pods()
	for _, pod := range all {
		wantsLayers, wanted := layers[pod.UID]
		if !wanted {
			continue
		}
		p, ok := c.readPod(pod)
		if !ok {
			continue
		}
		readings = append(readings, p)
		if wantsLayers {
			if node.Runtime == nil {
				c.imageDisks(ctx, &node, p.at)
			}
			c.addLayers(ctx, &runtimeapi.ContainerStatsFilter{
				LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)},
			}, own)
		}
	}
	c.keep(all)
	out := make(map[types.UID]*statsapi.PodStats, len(readings))
	for i := range readings {
		stats := podStats(&readings[i])
		c.addDisks(&readings[i], &stats, &node, own)
		out[readings[i].pod.UID] = &stats
	}
	return out
}
