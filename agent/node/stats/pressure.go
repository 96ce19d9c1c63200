package stats

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
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
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	where := c.disksOf()
	n := c.readNode()
	out := NodeUsage{NodeStats: c.nodeStats(&n, false)}
	found, _ := where.value(ctx)
	out.Runtime = found.stats
	root, known := deviceOf(c.cfg.RootDir)
	if !known || found.images == nil {
		return out
	}
	out.Disks = &Disks{ImageFs: *found.images != root}
	if found.layers != nil {
		out.Disks.SplitFs = *found.layers != *found.images
	}
	return out
}

// Glance returns what the node has left of its memory, its tasks and the file system of the agent's
// root directory, and nothing else. It asks nobody, so it can be called often.
func (c *Collector) Glance() NodeUsage {
	n := nodeReading{at: time.Now(), memory: map[string]uint64{}}
	c.readLeft(&n)
	return NodeUsage{NodeStats: c.nodeStats(&n, false)}
}

// Storage returns how much local storage pods use: their volumes and logs, and the writable layers
// of the pods for which layers is true. It looks at no cgroup. Directories are measured at most
// once in [sizePeriod], or as often as is asked if that takes little; a pod's layers take a call to
// the shim of each container.
func (c *Collector) Storage(ctx context.Context, layers map[types.UID]bool) map[types.UID]*statsapi.PodStats {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var node statsapi.NodeStats
	node.Fs = fileSystem(c.cfg.RootDir, time.Now())
	var readings []podReading
	var layered []wanted[types.UID, map[string]layer]
	all := c.deps.Pods()
	for _, pod := range all {
		wantsLayers, isWanted := layers[pod.UID]
		if !isWanted {
			continue
		}
		readings = append(readings, podReading{pod: pod, at: time.Now(), containers: runningReadings(pod)})
		if wantsLayers {
			layered = append(layered, c.layersOf(pod.UID, 0))
		}
	}
	c.sizes.renew(func(dir dirKey) bool { _, limited := layers[dir.pod]; return limited }, limitEffort)
	own := map[string]layer{}
	if len(layered) > 0 {
		found, _ := c.disksOf().value(ctx)
		node.Runtime = found.stats
	}
	for _, of := range layered {
		found, _ := of.value(ctx)
		maps.Copy(own, found)
	}
	c.keep(all)
	out := make(map[types.UID]*statsapi.PodStats, len(readings))
	for i := range readings {
		stats := podStats(&readings[i])
		c.addDisks(ctx, &readings[i], &stats, &node, own)
		out[readings[i].pod.UID] = &stats
	}
	return out
}
