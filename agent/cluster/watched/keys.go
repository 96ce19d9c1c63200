package watched

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/berthd/berth/agent/pod/references"
	"github.com/berthd/berth/agent/pod/runtimeclass"
	"github.com/berthd/berth/agent/source/objects"
)

// KindService is the kind of Services. Manifests have none.
const KindService = "Service"

// master is the Service that every pod has in its environment, whatever its service links are.
var master = objects.Key{Kind: KindService, Namespace: v1.NamespaceDefault, Name: "kubernetes"}

// These are the keys of all objects of a kind.
var (
	allServices = objects.Key{Kind: KindService}
	allClasses  = objects.Key{Kind: objects.KindRuntimeClass}
	allDrivers  = objects.Key{Kind: objects.KindCSIDriver}
)

// KeysOf returns what a pod uses: each object that it refers to, and, with an empty name, all
// objects of a kind.
func KeysOf(pod *v1.Pod) []objects.Key {
	var keys []objects.Key
	for _, ref := range references.Of(pod) {
		keys = append(keys, objects.Key{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}
	drivers := false
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		drivers = drivers || v.CSI != nil || v.Ephemeral != nil || v.PersistentVolumeClaim != nil
		if v.Ephemeral != nil {
			keys = append(keys, objects.Key{
				Kind:      objects.KindClaim,
				Namespace: pod.Namespace,
				Name:      ephemeral.VolumeClaimName(pod, v),
			})
		}
	}
	if drivers { // what is behind a claim is not known yet
		keys = append(keys, allDrivers)
	}
	if runtimeclass.Name(pod) != "" {
		keys = append(keys, allClasses)
	}
	return append(keys, servicesOf(pod))
}

// servicesOf returns the key of the Services that a pod's environment needs.
func servicesOf(pod *v1.Pod) objects.Key {
	if links := pod.Spec.EnableServiceLinks; links != nil && !*links {
		return master
	}
	return allServices
}

// resource returns a kind's name in the API's paths.
func resource(kind string) string {
	if kind == objects.KindRuntimeClass {
		return "runtimeclasses"
	}
	return strings.ToLower(kind) + "s"
}

// singular returns a kind's name in the kubelet's messages.
func singular(kind string) schema.GroupResource {
	return schema.GroupResource{Resource: strings.ToLower(kind)}
}

// describe names an object in logs and messages.
func describe(key objects.Key) string {
	switch {
	case key.Name == "":
		return resource(key.Kind)
	case key.Namespace == "":
		return strings.ToLower(key.Kind) + " " + key.Name
	}
	return strings.ToLower(key.Kind) + " " + key.Namespace + "/" + key.Name
}
