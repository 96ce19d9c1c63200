package eviction

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"

	"github.com/berthd/berth/agent/node/stats"
)

// The signals of local storage limits, as the kubelet's metric has them.
const (
	containerLimit Signal = "ephemeralcontainerfs.limit"
	podLimit       Signal = "ephemeralpodfs.limit"
	emptyDirLimit  Signal = "emptydirfs.limit"
)

// limited reports whether a pod has limits of local storage, and whether the size of its
// containers' writable layers matters for one.
func limited(pod *v1.Pod) (any, layers bool) {
	for i := range pod.Spec.Volumes {
		if e := pod.Spec.Volumes[i].EmptyDir; e != nil && e.SizeLimit != nil && e.SizeLimit.Sign() > 0 {
			any = true
		}
	}
	_, layers = helpers.PodLimits(pod, helpers.PodResourcesOptions{})[v1.ResourceEphemeralStorage]
	return any || layers, layers
}

// overLimit returns the first limit of local storage that a pod exceeds, and the kubelet's message;
// false if it exceeds none. The kubelet looks at volumes, then at the pod, then at its containers.
func overLimit(c candidate, d stats.Disks) (limit Signal, message string, over bool) {
	for i := range c.pod.Spec.Volumes {
		if size, exceeded := overSize(c, &c.pod.Spec.Volumes[i]); exceeded {
			return emptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ",
				c.pod.Spec.Volumes[i].Name, size.String()), true
		}
	}
	if most, ok := helpers.PodLimits(c.pod, helpers.PodResourcesOptions{})[v1.ResourceEphemeralStorage]; ok {
		if uses := usedBytes(c.stats.EphemeralStorage); uses.Cmp(most) > 0 {
			return podLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ",
				most.String()), true
		}
	}
	for i := range c.stats.Containers {
		s := &c.stats.Containers[i]
		container := appContainer(c.pod, s.Name)
		if container == nil {
			continue
		}
		uses := usedBytes(s.Logs)
		if !d.ImageFs {
			uses.Add(usedBytes(s.Rootfs))
		}
		if most := container.Resources.Limits.StorageEphemeral(); !most.IsZero() && uses.Cmp(*most) > 0 {
			return containerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ",
				s.Name, most.String()), true
		}
	}
	return "", "", false
}

// overSize reports whether an emptyDir takes more than its size limit, and returns the limit.
func overSize(c candidate, v *v1.Volume) (most resource.Quantity, over bool) {
	if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() <= 0 {
		return most, false
	}
	for i := range c.stats.VolumeStats {
		if s := &c.stats.VolumeStats[i]; s.Name == v.Name {
			uses := usedBytes(&s.FsStats)
			return *v.EmptyDir.SizeLimit, uses.Cmp(*v.EmptyDir.SizeLimit) > 0
		}
	}
	return most, false
}

// appContainer returns a pod's app container; nil for any other.
func appContainer(pod *v1.Pod, name string) *v1.Container {
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return &pod.Spec.Containers[i]
		}
	}
	return nil
}
