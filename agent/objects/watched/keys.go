package watched

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/berthd/berth/agent/objects"
	"github.com/berthd/berth/agent/runtimeclass"
	"github.com/berthd/berth/agent/volumes"
)

// KindService is the kind of Services, of which no manifest has any.
const KindService = "Service"

// master is the Service that every pod finds in its environment, whatever it says of service links.
var master = objects.Key{Kind: KindService, Namespace: v1.NamespaceDefault, Name: "kubernetes"}

// Keys of all objects of a kind.
var (
	allServices = objects.Key{Kind: KindService}
	allClasses  = objects.Key{Kind: objects.KindRuntimeClass}
	allDrivers  = objects.Key{Kind: objects.KindCSIDriver}
)

// KeysOf returns what a pod uses: each object that it refers to, and with an empty name all objects of a kind.
func KeysOf(pod *v1.Pod) []objects.Key {
	var keys []objects.Key
	for _, ref := range volumes.References(pod) {
		keys = append(keys, objects.Key{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}
	drivers := false
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		drivers = drivers || v.CSI != nil || v.Ephemeral != nil || v.PersistentVolumeClaim != nil
		if v.Ephemeral != nil {
			keys = append(keys, objects.Key{Kind: objects.KindClaim, Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, v)})
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

// servicesOf returns which Services a pod's environment needs.
func servicesOf(pod *v1.Pod) objects.Key {
	if links := pod.Spec.EnableServiceLinks; links != nil && !*links {
		return master
	}
	return allServices
}

// resource names a kind as the API's paths do.
func resource(kind string) string {
	if kind == objects.KindRuntimeClass {
		return "runtimeclasses"
	}
	return strings.ToLower(kind) + "s"
}

// singular names a kind as the kubelet's messages do.
func singular(kind string) schema.GroupResource {
	return schema.GroupResource{Resource: strings.ToLower(kind)}
}

// told names an object in logs and messages.
func told(key objects.Key) string {
	switch {
	case key.Name == "":
		return resource(key.Kind)
	case key.Namespace == "":
		return strings.ToLower(key.Kind) + " " + key.Name
	}
	return strings.ToLower(key.Kind) + " " + key.Namespace + "/" + key.Name
}
