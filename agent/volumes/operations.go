package volumes

import (
	"errors"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The names of operations on volumes are upstream's (pkg/volume/util/operationexecutor).
const (
	operationMount   = "volume_mount"
	operationMap     = "map_volume"
	operationUnmount = "volume_unmount"
	operationUnmap   = "unmap_volume"
)

// pluginName returns upstream's name of the plugin that makes volumes of a kind. persistent is nil
// for a volume that is not behind a claim. It is empty for a claim whose volume is unknown.
func pluginName(source *v1.VolumeSource, persistent *v1.PersistentVolume) string {
	var from v1.PersistentVolumeSource
	if persistent != nil {
		from = persistent.Spec.PersistentVolumeSource
	}
	switch {
	case source.EmptyDir != nil:
		return "kubernetes.io/empty-dir"
	case source.ConfigMap != nil:
		return "kubernetes.io/configmap"
	case source.Secret != nil:
		return "kubernetes.io/secret"
	case source.DownwardAPI != nil:
		return "kubernetes.io/downward-api"
	case source.Projected != nil:
		return "kubernetes.io/projected"
	case source.HostPath != nil, from.HostPath != nil:
		return "kubernetes.io/host-path"
	case source.NFS != nil, from.NFS != nil:
		return "kubernetes.io/nfs"
	case from.Local != nil:
		return "kubernetes.io/local-volume"
	case source.CSI != nil:
		return "kubernetes.io/csi:" + source.CSI.Driver
	case from.CSI != nil:
		return "kubernetes.io/csi:" + from.CSI.Driver
	}
	return ""
}

// operations measures how long it takes until volumes are up, and until they are down. It has the
// volumes that are coming up or are up. It is only for metrics, and is empty after a restart: then
// the volumes come up anew, as in a kubelet.
type operations struct {
	observe func(plugin, operation string, took time.Duration, err error)

	mu   sync.Mutex
	pods map[types.UID]map[string]*operation // by the volume's name in the pod
}

// operation is a volume that comes up or is up.
type operation struct {
	plugin string
	begun  time.Time
	device bool
	up     bool
}

func newOperations(observe func(plugin, operation string, took time.Duration, err error)) *operations {
	return &operations{observe: observe, pods: map[types.UID]map[string]*operation{}}
}

// begin says that a volume is asked for.
func (o *operations) begin(uid types.UID, volume string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.pods[uid]
	if of == nil {
		of = map[string]*operation{}
		o.pods[uid] = of
	}
	if op := of[volume]; op == nil {
		of[volume] = &operation{begun: time.Now()}
	}
}

// end records the result of an attempt to bring up a volume, unless the volume was up already.
func (o *operations) end(uid types.UID, volume, plugin string, device bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	op := o.pods[uid][volume]
	if op == nil || op.up && err == nil || errors.Is(err, ErrUnderWay) || plugin == "" || o.observe == nil {
		return
	}
	name := operationMount
	if device {
		name = operationMap
	}
	o.observe(plugin, name, time.Since(op.begun), err)
	op.plugin, op.device, op.up = plugin, device, op.up || err == nil
	op.begun = time.Now()
}

// down records that the volumes of a pod were taken down, or could not be. They are taken down
// together, so each has the time of all.
func (o *operations) down(uid types.UID, took time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, op := range o.pods[uid] {
		if !op.up || o.observe == nil {
			continue
		}
		name := operationUnmount
		if op.device {
			name = operationUnmap
		}
		o.observe(op.plugin, name, took, err)
	}
	if err == nil {
		delete(o.pods, uid)
	}
}
