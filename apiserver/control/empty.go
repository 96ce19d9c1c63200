package control

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// withoutApps tells the informers that there are no objects of apps/v1, because the server does not
// serve that group. Two controllers would wait for these objects for ever. The node lifecycle
// controller makes no other use of DaemonSets. The disruption controller looks there for the scale
// of a pod's owner; of a pod with such an owner it then says that the owner's kind is not served.
func withoutApps(factory informers.SharedInformerFactory) {
	for kind, list := range map[runtime.Object]runtime.Object{
		&appsv1.DaemonSet{}:   &appsv1.DaemonSetList{ListMeta: emptyList},
		&appsv1.Deployment{}:  &appsv1.DeploymentList{ListMeta: emptyList},
		&appsv1.ReplicaSet{}:  &appsv1.ReplicaSetList{ListMeta: emptyList},
		&appsv1.StatefulSet{}: &appsv1.StatefulSetList{ListMeta: emptyList},
	} {
		factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
			return cache.NewSharedIndexInformer(none{list}, kind, 0,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		})
	}
}

// emptyList is of a list without objects.
var emptyList = metav1.ListMeta{ResourceVersion: "1"}

// none has an informer be synced and stay empty: it lists nothing, sees no change and asks nobody.
type none struct{ list runtime.Object }

// List returns an empty list.
func (n none) List(metav1.ListOptions) (runtime.Object, error) { return n.list.DeepCopyObject(), nil }

// Watch returns a watch without events.
func (none) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

// IsWatchListSemanticsUnSupported has client-go use List: a watch of none says nothing about its
// beginning.
func (none) IsWatchListSemanticsUnSupported() bool { return true }
