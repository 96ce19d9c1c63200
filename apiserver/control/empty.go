package control

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// emptyInformer returns an informer of DaemonSets that is synced and stays empty. It asks nobody.
func emptyInformer(kubernetes.Interface, time.Duration) cache.SharedIndexInformer {
	return cache.NewSharedIndexInformer(none{}, &appsv1.DaemonSet{}, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
}

// none lists nothing and sees no change.
type none struct{}

// List returns an empty list.
func (none) List(metav1.ListOptions) (runtime.Object, error) {
	return &appsv1.DaemonSetList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
}

// Watch returns a watch without events.
func (none) Watch(metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil }

// IsWatchListSemanticsUnSupported has client-go use List: a watch of none says nothing about its
// beginning.
func (none) IsWatchListSemanticsUnSupported() bool { return true }
