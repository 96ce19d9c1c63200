package fake

import (
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Pods, Nodes and Leases are the resources of pods, nodes and leases.
var (
	Pods   = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	Nodes  = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	Leases = schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
)

func of(r schema.GroupVersionResource, namespace, name string) key {
	return key{r.GroupVersion(), r.Resource, namespace, name}
}

// Put makes or replaces an object, as another client would. An object without a UID gets one.
func (s *Server) Put(r schema.GroupVersionResource, obj runtime.Object) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj = obj.DeepCopyObject()
	m := access(obj)
	k := of(r, m.GetNamespace(), m.GetName())
	old, there := s.store.objects[k]
	if !there {
		t := target{gv: k.gv, resource: k.resource, namespace: k.namespace}
		if m.GetUID() != "" {
			t.part = "keep"
		}
		out, err := s.create(t, obj)
		if err != nil {
			panic(err) // there is none
		}
		return out.DeepCopyObject()
	}
	m.SetUID(access(old).GetUID())
	return s.put(k, "MODIFIED", obj).DeepCopyObject()
}

// Get returns a copy of an object, nil if there is none.
func (s *Server) Get(r schema.GroupVersionResource, namespace, name string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	obj, ok := s.store.objects[of(r, namespace, name)]
	if !ok {
		return nil
	}
	return obj.DeepCopyObject()
}

// Pod returns a copy of a pod, nil if there is none.
func (s *Server) Pod(namespace, name string) *v1.Pod {
	pod, _ := s.Get(Pods, namespace, name).(*v1.Pod)
	return pod
}

// Delete deletes an object as a user does, with that grace period in seconds; nil means the
// object's own.
func (s *Server) Delete(r schema.GroupVersionResource, namespace, name string, grace *int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.remove(of(r, namespace, name), &metav1.DeleteOptions{GracePeriodSeconds: grace}); err != nil &&
		!apierrors.IsNotFound(err) {
		panic(err) // without preconditions no other error is possible
	}
}
