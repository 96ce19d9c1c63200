package stats

import (
	"context"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// kindCSI is the directory of volumes of CSI drivers, kindLocal that of local ones.
const (
	kindCSI   = "kubernetes.io~csi"
	kindLocal = "kubernetes.io~local-volume"
)

// driversTimeout bounds how long all drivers together are waited for when somebody asks.
const driversTimeout = 3 * time.Second

// toldKey names a volume of a driver, by its directory.
type toldKey struct {
	pod   types.UID
	name  string
	block bool
}

// told is what a driver said of a volume, nil if it does not say.
type told struct {
	at    time.Time
	stats *statsapi.FsStats
}

// answers remembers what drivers said.
type answers map[toldKey]told

// keep drops what is of other pods.
func (a answers) keep(pods map[types.UID]bool) {
	maps.DeleteFunc(a, func(key toldKey, _ told) bool { return !pods[key.pod] })
}

// told returns what a driver says of a volume. It is asked at most once in [sizePeriod], also one that fails; once time is up, what was said last is all there is.
func (c *Collector) told(ctx context.Context, key toldKey) *statsapi.FsStats {
	last := c.answers[key]
	if c.deps.Driver == nil || !last.at.IsZero() && time.Since(last.at) < sizePeriod || !time.Now().Before(c.patience) {
		return last.stats
	}
	ctx, cancel := context.WithDeadline(ctx, c.patience)
	defer cancel()
	stats, err := c.deps.Driver(ctx, key.pod, key.name, key.block)
	if err != nil {
		c.deps.Logger.Debug("the driver does not tell how full a volume is", "volume", key.name, "uid", key.pod, "err", err)
		stats = last.stats
	}
	c.answers[key] = told{at: time.Now(), stats: stats}
	return stats
}

// names are what a pod's volumes are called.
type names struct {
	namespace string
	// volumes are the names in the pod of those that are claims, by the PersistentVolumes', and claims their claims, by those names.
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

// claim returns the claim whose volume lies in a directory; nil for none.
func (n names) claim(dir string) *statsapi.PVCReference {
	volume, ok := n.volumes[dir]
	if !ok {
		return nil
	}
	return &statsapi.PVCReference{Name: n.claims[volume], Namespace: n.namespace}
}

// stats are those of the volume in a directory.
func (n names) stats(dir string, fs *statsapi.FsStats) statsapi.VolumeStats {
	out := statsapi.VolumeStats{Name: dir, FsStats: *fs, PVCRef: n.claim(dir)}
	if volume, ok := n.volumes[dir]; ok {
		out.Name = volume
	}
	return out
}
