package eviction

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/internal/pods"
)

// candidate is a pod that may be asked to leave.
type candidate struct {
	// pod has the resources that it was allocated.
	pod *v1.Pod
	// stats is the pod's usage; nil if it is not known.
	stats *statsapi.PodStats
}

// rank sorts pods for eviction by the kubelet's rules: first pods that use more than they request
// of what is short, then pods of a lower priority, then pods that use most beyond their request. Of
// process ids there is no request. A pod of unknown usage comes first.
func rank(list []candidate, s Signal, d stats.Disks) {
	name := s.resource()
	slices.SortStableFunc(list, func(x, y candidate) int {
		byPriority := cmp.Compare(pods.Priority(x.pod), pods.Priority(y.pod))
		if x.stats == nil || y.stats == nil {
			return cmp.Or(pods.TrueFirst(name != resourcePIDs && x.stats == nil, name != resourcePIDs && y.stats == nil),
				byPriority, pods.TrueFirst(x.stats == nil, y.stats == nil))
		}
		xUsed, yUsed := used(x, s, d), used(y, s, d)
		if name == resourcePIDs {
			return cmp.Or(byPriority, yUsed.Cmp(xUsed))
		}
		xOver, yOver := xUsed.DeepCopy(), yUsed.DeepCopy()
		xOver.Sub(request(x.pod, beyond(name)))
		yOver.Sub(request(y.pod, beyond(name)))
		return cmp.Or(pods.TrueFirst(xUsed.Cmp(request(x.pod, name)) > 0, yUsed.Cmp(request(y.pod, name)) > 0),
			byPriority, yOver.Cmp(xOver))
	})
}

// beyond returns the resource whose request is subtracted from the usage to compare pods. The
// kubelet subtracts the request for storage also from a count of inodes.
func beyond(name v1.ResourceName) v1.ResourceName {
	if name == resourceInodes {
		return v1.ResourceEphemeralStorage
	}
	return name
}

// used returns how much a pod uses of what is short.
func used(c candidate, s Signal, d stats.Disks) resource.Quantity {
	switch s.resource() {
	case v1.ResourceMemory:
		return workingSet(c.stats.Memory)
	case resourcePIDs:
		if p := c.stats.ProcessStats; p != nil && p.ProcessCount != nil {
			return *resource.NewQuantity(int64(*p.ProcessCount), resource.DecimalSI)
		}
		return resource.Quantity{}
	}
	bytes, inodes := files(c, occupies(s, d))
	if s.resource() == resourceInodes {
		return inodes
	}
	return bytes
}

// workingSet returns the memory in use that cannot be reclaimed at once; 0 if it is not known.
func workingSet(m *statsapi.MemoryStats) resource.Quantity {
	if m == nil || m.WorkingSetBytes == nil {
		return resource.Quantity{Format: resource.BinarySI}
	}
	return *resource.NewQuantity(int64(*m.WorkingSetBytes), resource.BinarySI)
}

// files returns what those of a pod's files take that count.
func files(c candidate, counts usage) (bytes, inodes resource.Quantity) {
	bytes, inodes = resource.Quantity{Format: resource.BinarySI}, resource.Quantity{Format: resource.DecimalSI}
	add := func(fs *statsapi.FsStats) {
		bytes.Add(usedBytes(fs))
		if fs != nil && fs.InodesUsed != nil {
			inodes.Add(*resource.NewQuantity(int64(*fs.InodesUsed), resource.DecimalSI))
		}
	}
	for i := range c.stats.Containers {
		if counts.layers {
			add(c.stats.Containers[i].Rootfs)
		}
		if counts.logs {
			add(c.stats.Containers[i].Logs)
		}
	}
	if !counts.volumes {
		return bytes, inodes
	}
	for i := range c.pod.Spec.Volumes {
		volume := &c.pod.Spec.Volumes[i]
		if !local(volume) {
			continue
		}
		for j := range c.stats.VolumeStats {
			if c.stats.VolumeStats[j].Name == volume.Name {
				add(&c.stats.VolumeStats[j].FsStats)
				break
			}
		}
	}
	return bytes, inodes
}

// local reports whether a volume's files are on the node's own disk, by the kubelet's rule.
func local(v *v1.Volume) bool {
	return v.HostPath != nil || v.ConfigMap != nil ||
		v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
}

// usedBytes returns what a part of a file system takes; 0 if it is not known.
func usedBytes(fs *statsapi.FsStats) resource.Quantity {
	if fs == nil || fs.UsedBytes == nil {
		return resource.Quantity{Format: resource.BinarySI}
	}
	return *resource.NewQuantity(int64(*fs.UsedBytes), resource.BinarySI)
}

// request returns how much of a resource a pod requests: what the pod as a whole requests, else its
// containers together, and its overhead.
func request(pod *v1.Pod, name v1.ResourceName) resource.Quantity {
	list := helpers.PodRequests(pod, helpers.PodResourcesOptions{
		SkipContainerLevelResources: helpers.IsPodLevelResourcesSet(pod), ExcludeOverhead: true,
	})
	out := list[name]
	if more, ok := pod.Spec.Overhead[name]; ok && !out.IsZero() {
		out.Add(more)
	}
	return out
}
