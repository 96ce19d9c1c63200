package watched

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/internal/retry"
)

// resolve fetches a claim and its volume until the claim is bound, and then stops.
func (w *Watcher) resolve(ctx context.Context, e *entry) {
	for failures := 1; ; failures++ {
		end, err := w.turn(ctx, e)
		if err != nil {
			return
		}
		claim, volume, err := w.fetch(ctx, e.key)
		end()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			w.replace(e, []objects.Object{claim, volume})
			return
		}
		w.noteFailure(e, failures, err)
		if !w.deps.Ready(ctx, err) || !retry.Sleep(ctx, kube.Retry.Delay(failures, err)) {
			return
		}
	}
}

// fetch fetches a claim and the volume that the claim is bound to. The errors have the kubelet's
// words.
func (w *Watcher) fetch(ctx context.Context, key objects.Key) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	got, err := w.api.get(ctx, key)
	if err != nil {
		return nil, nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	claim, ok := got.(*v1.PersistentVolumeClaim)
	if !ok {
		return nil, nil, fmt.Errorf("failed to fetch PVC from API server: it sent a %T", got)
	}
	if err := usable(claim); err != nil {
		return nil, nil, err
	}
	name := claim.Spec.VolumeName
	got, err = w.api.get(ctx, objects.Key{Kind: objects.KindPersistentVolume, Name: name})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to fetch PV %s from API server: %w", name, err)
	}
	volume, ok := got.(*v1.PersistentVolume)
	if !ok {
		return nil, nil, fmt.Errorf("failed to fetch PV %s from API server: it sent a %T", name, got)
	}
	return claim, volume, bound(claim, volume)
}

// protection is the finalizer that keeps a deleted claim as long as pods use it.
const protection = "kubernetes.io/pvc-protection"

// usable says, in the kubelet's words, why a claim cannot be used.
func usable(claim *v1.PersistentVolumeClaim) error {
	switch {
	case claim.DeletionTimestamp != nil && !slices.Contains(claim.Finalizers, protection):
		return errors.New("PVC is being deleted")
	case claim.Status.Phase != v1.ClaimBound:
		return errors.New("PVC is not bound")
	case claim.Spec.VolumeName == "":
		return errors.New("PVC has empty pvc.Spec.VolumeName")
	}
	return nil
}

// bound says, in the kubelet's words, why a volume is not bound to the claim.
func bound(claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) error {
	switch ref := volume.Spec.ClaimRef; {
	case ref == nil:
		return fmt.Errorf(
			"found PV object %s but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
			volume.Name)
	case ref.UID != claim.UID:
		return fmt.Errorf("found PV object %s but its pv.Spec.ClaimRef.UID %s does not point to claim.UID %s",
			volume.Name, ref.UID, claim.UID)
	}
	return nil
}

// Resolve returns the volume that a pod's claim is bound to. The volume must not be changed. The
// error is [ErrPending] while the volume is being fetched. An error beside a volume says why the
// volume cannot be on this node.
func (w *Watcher) Resolve(pod *v1.Pod, name string) (*v1.PersistentVolume, error) {
	items, err := w.items(pod, objects.Key{Kind: objects.KindClaim, Namespace: pod.Namespace, Name: name})
	if err != nil {
		return nil, err
	}
	var volume *v1.PersistentVolume
	for _, o := range items {
		switch o := o.(type) {
		case *v1.PersistentVolume:
			volume = o
		case *v1.PersistentVolumeClaim:
			if made(pod, name) {
				if err := ephemeral.VolumeIsForPod(pod, o); err != nil {
					return nil, err
				}
			}
		}
	}
	return volume, w.here(volume)
}

// here says why a volume's node affinity does not allow this node. A node affinity that cannot be
// understood allows no node.
func (w *Watcher) here(volume *v1.PersistentVolume) error {
	if volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return nil
	}
	selector, err := nodeaffinity.NewNodeSelector(volume.Spec.NodeAffinity.Required)
	if err != nil {
		return err
	}
	if !selector.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: w.deps.NodeLabels()}}) {
		return errors.New("no matching NodeSelectorTerms")
	}
	return nil
}

// made reports whether a claim is made for one of the pod's own ephemeral volumes.
func made(pod *v1.Pod, claim string) bool {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil && ephemeral.VolumeClaimName(pod, v) == claim {
			return true
		}
	}
	return false
}
