package fake

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// key names an object.
type key struct {
	gv                        schema.GroupVersion
	resource, namespace, name string
}

func (t target) key() key { return key{t.gv, t.resource, t.namespace, t.name} }

func (t target) group() schema.GroupResource {
	return schema.GroupResource{Group: t.gv.Group, Resource: t.resource}
}

func (k key) group() schema.GroupResource {
	return schema.GroupResource{Group: k.gv.Group, Resource: k.resource}
}

// change is a change that watchers get.
type change struct {
	revision int64
	key      key
	kind     string // as in [watch.EventType]
	object   runtime.Object
}

// store is the server's objects and their history.
type store struct {
	objects  map[key]runtime.Object
	revision int64
	// compacted is the revision before which no changes are kept.
	compacted int64
	history   []change
}

func newStore() store { return store{objects: map[key]runtime.Object{}, revision: 1} }

func (s *store) get(k key) (runtime.Object, error) {
	if obj, ok := s.objects[k]; ok {
		return obj, nil
	}
	return nil, apierrors.NewNotFound(k.group(), k.name)
}

// put stores an object, or with DELETED its last state, and notifies watchers. The caller holds
// s.mu.
func (s *Server) put(k key, kind string, obj runtime.Object) runtime.Object {
	s.store.revision++
	access(obj).SetResourceVersion(strconv.FormatInt(s.store.revision, 10))
	if kind == "DELETED" {
		delete(s.store.objects, k)
	} else {
		s.store.objects[k] = obj
	}
	c := change{s.store.revision, k, kind, obj}
	s.store.history = append(s.store.history, c)
	for w := range s.watchers {
		w.offer(c)
	}
	return obj
}

func access(obj runtime.Object) metav1.Object {
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err) // every object of the scheme has metadata
	}
	return m
}

func (s *Server) create(t target, obj runtime.Object) (runtime.Object, error) {
	m := access(obj)
	if m.GetName() == "" {
		m.SetName(fmt.Sprintf("%s%d", m.GetGenerateName(), s.store.revision+1))
	}
	k := t.key()
	k.name = m.GetName()
	if _, there := s.store.objects[k]; there {
		return nil, apierrors.NewAlreadyExists(t.group(), k.name)
	}
	if m.GetUID() == "" || t.part == "" {
		m.SetUID(types.UID(fmt.Sprintf("uid-%d", s.store.revision+1)))
	}
	m.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	m.SetGeneration(1)
	return s.put(k, "ADDED", obj), nil
}

func (s *Server) update(k key, obj runtime.Object) (runtime.Object, error) {
	old, err := s.store.get(k)
	if err != nil {
		return nil, err
	}
	if rv := access(obj).GetResourceVersion(); rv != "" && rv != access(old).GetResourceVersion() {
		return nil, apierrors.NewConflict(k.group(), k.name, fmt.Errorf("the object has been modified"))
	}
	access(obj).SetUID(access(old).GetUID())
	return s.put(k, "MODIFIED", obj), nil
}

// patch applies a strategic merge patch to the object or to its status.
func (s *Server) patch(k key, part string, patch []byte) (runtime.Object, error) {
	old, err := s.store.get(k)
	if err != nil {
		return nil, err
	}
	var about struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(patch, &about); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if about.Metadata.UID != "" && about.Metadata.UID != access(old).GetUID() ||
		about.Metadata.ResourceVersion != "" && about.Metadata.ResourceVersion != access(old).GetResourceVersion() {
		return nil, apierrors.NewConflict(k.group(), k.name, fmt.Errorf("precondition failed"))
	}
	merged, err := strategicpatch.StrategicMergePatch(asJSON(old), patch, old)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	out := reflect.New(reflect.TypeOf(old).Elem()).Interface().(runtime.Object)
	if err := json.Unmarshal(merged, out); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	field := func(o runtime.Object, name string) reflect.Value { return reflect.ValueOf(o).Elem().FieldByName(name) }
	keep := "Status"
	if part == "status" {
		keep = "Spec"
	}
	if f := field(out, keep); f.IsValid() {
		f.Set(field(old, keep))
	}
	if f := field(out, "Spec"); f.IsValid() && !reflect.DeepEqual(f.Interface(), field(old, "Spec").Interface()) {
		access(out).SetGeneration(access(old).GetGeneration() + 1)
	}
	if reflect.DeepEqual(asJSON(out), asJSON(old)) {
		return old, nil
	}
	return s.put(k, "MODIFIED", out), nil
}

// remove deletes an object. It deletes a pod on a node only when the grace period is 0.
func (s *Server) remove(k key, opts *metav1.DeleteOptions) (runtime.Object, error) {
	old, err := s.store.get(k)
	if err != nil {
		return nil, err
	}
	if p := opts.Preconditions; p != nil && p.UID != nil && *p.UID != access(old).GetUID() {
		return nil, apierrors.NewConflict(k.group(), k.name, fmt.Errorf("precondition failed: UID"))
	}
	obj := old.DeepCopyObject()
	if pod, ok := obj.(*v1.Pod); ok && pod.Spec.NodeName != "" {
		grace := int64(30)
		if pod.Spec.TerminationGracePeriodSeconds != nil {
			grace = *pod.Spec.TerminationGracePeriodSeconds
		}
		if opts.GracePeriodSeconds != nil {
			grace = *opts.GracePeriodSeconds
		}
		if _, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]; grace > 0 && !mirror {
			if pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds <= grace {
				return pod, nil
			}
			at := metav1.NewTime(time.Now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &at, &grace
			return s.put(k, "MODIFIED", pod), nil
		}
	}
	return s.put(k, "DELETED", obj), nil
}

// list returns the objects that a field selector selects.
func (s *Server) list(t target, selector string) (runtime.Object, error) {
	kind := map[string]string{
		"configmaps":             "ConfigMapList",
		"events":                 "EventList",
		"leases":                 "LeaseList",
		"nodes":                  "NodeList",
		"pods":                   "PodList",
		"podcertificaterequests": "PodCertificateRequestList",
		"runtimeclasses":         "RuntimeClassList",
		"secrets":                "SecretList",
		"services":               "ServiceList",
	}[t.resource]
	list, err := s.scheme.New(t.gv.WithKind(kind))
	if err != nil {
		return nil, apierrors.NewBadRequest("the fake has no lists of " + t.resource)
	}
	var items []runtime.Object
	for _, k := range slices.SortedFunc(maps.Keys(s.store.objects), func(a, b key) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	}) {
		if obj := s.store.objects[k]; t.has(k) && selects(selector, obj) {
			items = append(items, obj)
		}
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	of, err := meta.ListAccessor(list)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	of.SetResourceVersion(strconv.FormatInt(s.store.revision, 10))
	return list, nil
}

// has reports whether a list or watch is about an object.
func (t target) has(k key) bool {
	return t.gv == k.gv && t.resource == k.resource && (t.namespace == "" || t.namespace == k.namespace)
}

// selects reports whether a field selector, which may only have equalities, selects an object.
func selects(selector string, obj runtime.Object) bool {
	for term := range strings.SplitSeq(selector, ",") {
		field, want, _ := strings.Cut(term, "=")
		switch {
		case field == "":
		case field == "metadata.name" && access(obj).GetName() == want:
		case field == "spec.nodeName" && nodeOf(obj) == want:
		default:
			return false
		}
	}
	return true
}

// nodeOf returns the node that an object's spec names; empty if there is none.
func nodeOf(obj runtime.Object) string {
	switch o := obj.(type) {
	case *v1.Pod:
		return o.Spec.NodeName
	case *certificatesv1beta1.PodCertificateRequest:
		return string(o.Spec.NodeName)
	}
	return ""
}
