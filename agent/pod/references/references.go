// Package references says which ConfigMaps, Secrets and claims a pod reads.
//
// Purpose: [Of] is asked by those who keep these objects at hand and by those who notify pods of
// their changes.
//
// Truth owned: none; the functions are pure.
//
// Concurrency: none.
package references

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// The kinds of a [Reference].
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindClaim     = "PersistentVolumeClaim"
)

// Reference is an object that a pod reads.
type Reference struct {
	// Kind is [KindConfigMap], [KindSecret] or [KindClaim].
	Kind string
	// Namespace and Name say which.
	Namespace, Name string
	// Optional says that the pod does without it, wherever it refers to it.
	Optional bool
}

// Of returns every ConfigMap, Secret and PersistentVolumeClaim that the pod names: in the
// environment of any container, in volumes, and as image pull secrets. Each object is there once,
// in the order of its first mention; it is optional when every mention is. Image pull secrets are
// optional, since a pull is tried without them.
func Of(pod *v1.Pod) []Reference {
	refs := &references{namespace: pod.Namespace, index: map[Reference]int{}}
	for container := range pods.Containers(&pod.Spec) {
		refs.environment(container)
	}
	for i := range pod.Spec.Volumes {
		refs.volume(&pod.Spec.Volumes[i].VolumeSource)
	}
	for _, secret := range pod.Spec.ImagePullSecrets {
		refs.add(KindSecret, secret.Name, true)
	}
	return refs.list
}

// references gathers a pod's references.
type references struct {
	namespace string
	list      []Reference
	// index says where in list an object is; its keys are not optional.
	index map[Reference]int
}

func (r *references) add(kind, name string, optional bool) {
	if name == "" {
		return
	}
	key := Reference{Kind: kind, Namespace: r.namespace, Name: name}
	if i, ok := r.index[key]; ok {
		r.list[i].Optional = r.list[i].Optional && optional
		return
	}
	r.index[key] = len(r.list)
	key.Optional = optional
	r.list = append(r.list, key)
}

func (r *references) environment(container *v1.Container) {
	for _, from := range container.EnvFrom {
		if ref := from.ConfigMapRef; ref != nil {
			r.add(KindConfigMap, ref.Name, isTrue(ref.Optional))
		}
		if ref := from.SecretRef; ref != nil {
			r.add(KindSecret, ref.Name, isTrue(ref.Optional))
		}
	}
	for _, env := range container.Env {
		if env.ValueFrom == nil {
			continue
		}
		if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
			r.add(KindConfigMap, ref.Name, isTrue(ref.Optional))
		}
		if ref := env.ValueFrom.SecretKeyRef; ref != nil {
			r.add(KindSecret, ref.Name, isTrue(ref.Optional))
		}
	}
}

func (r *references) volume(source *v1.VolumeSource) {
	if ref := source.ConfigMap; ref != nil {
		r.add(KindConfigMap, ref.Name, isTrue(ref.Optional))
	}
	if ref := source.Secret; ref != nil {
		r.add(KindSecret, ref.SecretName, isTrue(ref.Optional))
	}
	if source.Projected != nil {
		for _, projection := range source.Projected.Sources {
			if ref := projection.ConfigMap; ref != nil {
				r.add(KindConfigMap, ref.Name, isTrue(ref.Optional))
			}
			if ref := projection.Secret; ref != nil {
				r.add(KindSecret, ref.Name, isTrue(ref.Optional))
			}
		}
	}
	if ref := source.PersistentVolumeClaim; ref != nil {
		r.add(KindClaim, ref.ClaimName, false)
	}
	if ref := source.AzureFile; ref != nil {
		r.add(KindSecret, ref.SecretName, false)
	}
	for _, ref := range driverSecrets(source) {
		if ref != nil {
			r.add(KindSecret, ref.Name, false)
		}
	}
}

// driverSecrets returns the secrets that volume drivers log in with; entries may be nil.
func driverSecrets(source *v1.VolumeSource) []*v1.LocalObjectReference {
	var refs []*v1.LocalObjectReference
	if source.CephFS != nil {
		refs = append(refs, source.CephFS.SecretRef)
	}
	if source.Cinder != nil {
		refs = append(refs, source.Cinder.SecretRef)
	}
	if source.CSI != nil {
		refs = append(refs, source.CSI.NodePublishSecretRef)
	}
	if source.FlexVolume != nil {
		refs = append(refs, source.FlexVolume.SecretRef)
	}
	if source.ISCSI != nil {
		refs = append(refs, source.ISCSI.SecretRef)
	}
	if source.RBD != nil {
		refs = append(refs, source.RBD.SecretRef)
	}
	if source.ScaleIO != nil {
		refs = append(refs, source.ScaleIO.SecretRef)
	}
	if source.StorageOS != nil {
		refs = append(refs, source.StorageOS.SecretRef)
	}
	return refs
}

func isTrue(b *bool) bool { return b != nil && *b }
