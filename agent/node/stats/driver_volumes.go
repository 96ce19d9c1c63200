package stats

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// The directories of volumes, by their kind.
const (
	kindCSI       = "kubernetes.io~csi"
	kindLocal     = "kubernetes.io~local-volume"
	kindNFS       = "kubernetes.io~nfs"
	kindEmptyDir  = "kubernetes.io~empty-dir"
	kindConfigMap = "kubernetes.io~configmap"
)

// driverTimeout bounds the call of a driver.
const driverTimeout = 30 * time.Second

// driverKey names a volume of a driver, by its directory.
type driverKey struct {
	pod   types.UID
	name  string
	block bool
}

// driverStatsOf wants a volume's stats from its driver. A driver is asked at most once in
// [sizePeriod], also after a failure.
func (c *Collector) driverStatsOf(key driverKey) wanted[driverKey, *statsapi.FsStats] {
	return c.answers.want(key, sizePeriod, func(ctx context.Context) (*statsapi.FsStats, error) {
		if c.deps.Driver == nil {
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(ctx, driverTimeout)
		defer cancel()
		stats, err := c.deps.Driver(ctx, key.pod, key.name, key.block)
		if err != nil {
			c.deps.Logger.Debug("the driver does not report how full a volume is", "volume", key.name, "uid", key.pod,
				"err", err)
		}
		return stats, err
	})
}

// names are the names of a pod's volumes.
type names struct {
	namespace string
	// volumes maps the name of a PersistentVolume to the name of the pod's volume. claims maps the
	// name of the pod's volume to the name of its claim.
	volumes, claims map[string]string
}

func (c *Collector) names(pod *v1.Pod) names {
	out := names{namespace: pod.Namespace, claims: map[string]string{}}
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			out.claims[v.Name] = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			out.claims[v.Name] = ephemeral.VolumeClaimName(pod, v)
		}
	}
	if len(out.claims) > 0 && c.deps.Claimed != nil {
		out.volumes = c.deps.Claimed(pod)
	}
	return out
}

// claim returns the claim of the volume in a directory; nil if it is not a claim.
func (n names) claim(dir string) *statsapi.PVCReference {
	volume, ok := n.volumes[dir]
	if !ok {
		return nil
	}
	return &statsapi.PVCReference{Name: n.claims[volume], Namespace: n.namespace}
}

// stats returns the stats of the volume in a directory.
func (n names) stats(dir string, fs *statsapi.FsStats) statsapi.VolumeStats {
	out := statsapi.VolumeStats{Name: dir, FsStats: *fs, PVCRef: n.claim(dir)}
	if volume, ok := n.volumes[dir]; ok {
		out.Name = volume
	}
	return out
}
