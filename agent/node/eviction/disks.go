package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/stats"
)

// usage says which of a pod's files count.
type usage struct {
	// layers are the containers' writable layers, logs their logs, volumes the pod's local volumes.
	layers, logs, volumes bool
}

// occupies returns which of a pod's files are on the file system of a signal, by the kubelet's
// rules.
func occupies(s Signal, d stats.Disks) usage {
	onImages := s == ImageFsAvailable || s == ImageFsInodesFree
	onContainers := s == ContainerFsAvailable || s == ContainerFsInodesFree
	switch {
	case !d.ImageFs:
		return usage{layers: true, logs: true, volumes: true}
	case d.SplitFs && onImages:
		return usage{} // images alone, which no pod has for itself
	case d.SplitFs:
		return usage{layers: true, logs: true, volumes: true}
	case onImages || onContainers:
		return usage{layers: true}
	}
	return usage{logs: true, volumes: true}
}

// reclaims are the node's own files that can be removed before a pod has to leave.
type reclaims struct{ containers, images bool }

// reclaimable returns what can be removed from the file system of a signal, by the kubelet's rules.
func reclaimable(s Signal, d stats.Disks) reclaims {
	if s.condition() != v1.NodeDiskPressure {
		return reclaims{}
	}
	onNode := s == NodeFsAvailable || s == NodeFsInodesFree
	onImages := s == ImageFsAvailable || s == ImageFsInodesFree
	switch {
	case !d.ImageFs:
		return reclaims{containers: true, images: true}
	case d.SplitFs:
		return reclaims{containers: !onImages, images: onImages}
	}
	return reclaims{containers: !onNode, images: !onNode}
}

// withContainerFs returns the thresholds for the node's file systems. The thresholds of containerfs
// are those of nodefs or of imagefs, whichever has the writable layers; those of the config do not
// count, as under a kubelet.
func withContainerFs(thresholds []Threshold, d stats.Disks) []Threshold {
	bytes, inodes := NodeFsAvailable, NodeFsInodesFree
	if d.ImageFs && !d.SplitFs {
		bytes, inodes = ImageFsAvailable, ImageFsInodesFree
	}
	var out []Threshold
	for _, t := range thresholds {
		if t.Signal == ContainerFsAvailable || t.Signal == ContainerFsInodesFree {
			continue
		}
		out = append(out, t)
		switch t.Signal {
		case bytes:
			t.Signal = ContainerFsAvailable
			out = append(out, t)
		case inodes:
			t.Signal = ContainerFsInodesFree
			out = append(out, t)
		}
	}
	sortThresholds(out)
	return out
}

// sortThresholds puts thresholds into the order in which they are acted on.
func sortThresholds(list []Threshold) {
	rank := func(t Threshold) int { return slices.Index(order(), t.Signal) }
	slices.SortStableFunc(list, func(x, y Threshold) int {
		return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x.Grace, y.Grace))
	})
}
