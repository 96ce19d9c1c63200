package desired

import (
	"fmt"
	"log/slog"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/references"
	"github.com/berthd/berth/agent/pod/runtimeclass"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/agent/volumes/claims"
	"github.com/berthd/berth/internal/pods"
)

// LocalObjects wakes the pods that use an object of a manifest, when the object changes.
type LocalObjects struct {
	Store   *objects.Store
	Claims  *claims.Binder
	Workers *worker.Pool
	// Event records an event about a pod.
	Event  func(pod *v1.Pod, container, kind, reason, message string)
	Logger *slog.Logger
}

// Changed wakes the pods that read a changed local object, and records an event about each of them
// if the object was there before. Any claim may wait for a changed volume.
func (l LocalObjects) Changed(kind, namespace, name string) {
	switch kind {
	case objects.KindPersistentVolume:
		l.release(name)
	case objects.KindCSIDriver:
		WakeCSI(l.Workers)
		return
	}
	change := l.change(kind, namespace, name)
	for uid, e := range l.Workers.List() {
		if e.Phase == worker.Running && !pods.FromAPI(e.Pod) && uses(e.Pod, kind, namespace, name) {
			if change != "" {
				l.Event(e.Pod, "", v1.EventTypeNormal, ObjectChanged, change)
			}
			l.Workers.Wake(uid)
		}
	}
}

// change says what happened to a ConfigMap or a Secret; empty if it is new, or another kind.
func (l LocalObjects) change(kind, namespace, name string) string {
	if kind != objects.KindConfigMap && kind != objects.KindSecret {
		return ""
	}
	switch entry, there := l.Store.Get(kind, namespace, name); {
	case !there:
		return fmt.Sprintf("%s %s is in no manifest any more", kind, name)
	case entry.Replaced:
		return fmt.Sprintf("%s %s changed", kind, name)
	}
	return ""
}

// uses reports whether a pod may use a local object.
func uses(pod *v1.Pod, kind, namespace, name string) bool {
	switch kind {
	case objects.KindRuntimeClass:
		return runtimeclass.Name(pod) == name
	case objects.KindPersistentVolume:
		return slices.ContainsFunc(references.Of(pod), func(r references.Reference) bool {
			return r.Kind == references.KindClaim
		})
	}
	return pod.Namespace == namespace &&
		slices.ContainsFunc(references.Of(pod), func(r references.Reference) bool {
			return r.Kind == kind && r.Name == name
		})
}

// release ends the binding of a volume if no manifest has the volume any more.
func (l LocalObjects) release(name string) {
	if _, there := l.Store.Get(objects.KindPersistentVolume, "", name); there {
		return
	}
	if err := l.Claims.Release(name); err != nil {
		l.Logger.Warn("the binding of a volume that is gone stays", "volume", name, "err", err)
	}
}

// WakeCSI wakes the pods that have, or may have, volumes of storage drivers.
func WakeCSI(workers *worker.Pool) {
	for uid, e := range workers.List() {
		if slices.ContainsFunc(e.Pod.Spec.Volumes, func(v v1.Volume) bool {
			return v.CSI != nil || v.Ephemeral != nil || v.PersistentVolumeClaim != nil
		}) {
			workers.Wake(uid)
		}
	}
}
