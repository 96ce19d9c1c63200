package objects

import (
	"cmp"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// These are the kinds of objects that a store may hold.
const (
	KindConfigMap        = "ConfigMap"
	KindSecret           = "Secret"
	KindPersistentVolume = "PersistentVolume"
	KindClaim            = "PersistentVolumeClaim"
	KindRuntimeClass     = "RuntimeClass"
	KindCSIDriver        = "CSIDriver"
)

// Namespaced reports whether objects of a kind belong to a namespace.
func Namespaced(kind string) bool {
	return kind != KindPersistentVolume && kind != KindRuntimeClass && kind != KindCSIDriver
}

// Object is an object of a store. A *v1.ConfigMap, *v1.Secret or *v1.PersistentVolumeClaim has its
// namespace and name set. A *v1.PersistentVolume, *nodev1.RuntimeClass or *storagev1.CSIDriver has
// no namespace.
type Object interface {
	runtime.Object
	metav1.Object
}

// Entry is one object as the store holds it.
type Entry struct {
	// Object must not be modified.
	Object Object
	// Revision changes with the object's content. It never repeats for the same key while the agent
	// runs.
	Revision uint64
	// Source is the source that the object came from.
	Source string
	// Replaced says that the object took the place of another content.
	Replaced bool
}

// Format keeps the object's content out of logs and messages, because the content may be secret.
func (e Entry) Format(f fmt.State, _ rune) {
	if e.Object == nil {
		fmt.Fprint(f, "no object")
		return
	}
	fmt.Fprintf(f, "%s %s/%s revision %d from %s", KindOf(e.Object), e.Object.GetNamespace(), e.Object.GetName(),
		e.Revision, e.Source)
}

// LogValue does the same for structured logs.
func (e Entry) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(e)) }

// Key names an object.
type Key struct {
	Kind, Namespace, Name string
}

// KeyOf returns an object's key.
func KeyOf(o Object) Key {
	return Key{Kind: KindOf(o), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// KindOf returns an object's kind. It uses the object's Go type, because the kind field of decoded
// objects is often empty.
func KindOf(o Object) string {
	return reflect.TypeOf(o).Elem().Name()
}

// Store is the set of local objects. The zero value is not usable; see [New].
type Store struct {
	// changing is held for a whole Replace with its callbacks, so that the callbacks are in order.
	changing sync.Mutex

	mu        sync.RWMutex
	bySource  map[string]map[Key]Object
	current   map[Key]Entry
	revision  uint64
	listeners []*listener
}

type listener struct {
	changed func(kind, namespace, name string)
}

// New returns an empty store.
func New() *Store {
	return &Store{bySource: map[string]map[Key]Object{}, current: map[Key]Entry{}}
}

// Get returns an object by kind, namespace and name.
func (s *Store) Get(kind, namespace, name string) (Entry, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.current[Key{kind, namespace, name}]
	return e, ok
}

// ConfigMap returns a ConfigMap and its revision, or nil.
func (s *Store) ConfigMap(namespace, name string) (*v1.ConfigMap, uint64) {
	e, _ := s.Get(KindConfigMap, namespace, name)
	o, _ := e.Object.(*v1.ConfigMap)
	return o, e.Revision
}

// Secret returns a Secret and its revision, or nil.
func (s *Store) Secret(namespace, name string) (*v1.Secret, uint64) {
	e, _ := s.Get(KindSecret, namespace, name)
	o, _ := e.Object.(*v1.Secret)
	return o, e.Revision
}

// Claim returns a PersistentVolumeClaim, or nil.
func (s *Store) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	e, _ := s.Get(KindClaim, namespace, name)
	o, _ := e.Object.(*v1.PersistentVolumeClaim)
	return o
}

// PersistentVolumes returns all PersistentVolumes, by name.
func (s *Store) PersistentVolumes() []*v1.PersistentVolume {
	var out []*v1.PersistentVolume
	for _, e := range s.List(KindPersistentVolume) {
		if o, ok := e.Object.(*v1.PersistentVolume); ok {
			out = append(out, o)
		}
	}
	return out
}

// RuntimeClass returns a RuntimeClass, or nil.
func (s *Store) RuntimeClass(name string) *nodev1.RuntimeClass {
	e, _ := s.Get(KindRuntimeClass, "", name)
	o, _ := e.Object.(*nodev1.RuntimeClass)
	return o
}

// CSIDriver returns a CSIDriver, or nil.
func (s *Store) CSIDriver(name string) *storagev1.CSIDriver {
	e, _ := s.Get(KindCSIDriver, "", name)
	o, _ := e.Object.(*storagev1.CSIDriver)
	return o
}

// List returns all objects of a kind, by namespace and name.
func (s *Store) List(kind string) []Entry {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []Entry
	for key, e := range s.current {
		if key.Kind == kind {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Object.GetNamespace(), b.Object.GetNamespace()),
			cmp.Compare(a.Object.GetName(), b.Object.GetName()))
	})
	return out
}

// Replace sets all objects of one source, and removes the objects that the source no longer has. If
// several sources have an object with the same key, the store uses the object of the source whose
// name sorts first. Replace calls the listeners for one change after the other, before it returns.
func (s *Store) Replace(source string, objs []Object) {
	s.changing.Lock()
	defer s.changing.Unlock()
	changed, listeners := s.replace(source, objs)
	for _, key := range changed {
		for _, l := range listeners {
			l.changed(key.Kind, key.Namespace, key.Name)
		}
	}
}

// replace does the work of Replace. It returns which objects changed, and the listeners to notify.
func (s *Store) replace(source string, objs []Object) ([]Key, []*listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	touched := map[Key]struct{}{}
	for key := range s.bySource[source] {
		touched[key] = struct{}{}
	}
	mine := make(map[Key]Object, len(objs))
	for _, o := range objs {
		mine[KeyOf(o)] = o
		touched[KeyOf(o)] = struct{}{}
	}
	s.bySource[source] = mine
	var changed []Key
	for key := range touched {
		if s.resolve(key) {
			changed = append(changed, key)
		}
	}
	slices.SortFunc(changed, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return changed, slices.Clone(s.listeners)
}

// resolve updates current[key] from the sources, and reports whether the object's content changed.
// The caller holds mu.
func (s *Store) resolve(key Key) bool {
	var next Entry
	for source, objs := range s.bySource {
		if o, ok := objs[key]; ok && (next.Object == nil || source < next.Source) {
			next = Entry{Object: o, Source: source}
		}
	}
	old, had := s.current[key]
	switch {
	case next.Object == nil:
		delete(s.current, key)
		return had
	case had && equality.Semantic.DeepEqual(old.Object, next.Object):
		old.Source = next.Source
		s.current[key] = old
		return false
	}
	s.revision++
	next.Revision, next.Replaced = s.revision, had
	s.current[key] = next
	return true
}

// OnChange calls changed for every object that appears, changes its content or disappears, until
// the caller calls cancel. The callback may read the store. It must not call Replace, and must not
// block.
func (s *Store) OnChange(changed func(kind, namespace, name string)) (cancel func()) {
	l := &listener{changed: changed}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, l)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.listeners = slices.DeleteFunc(s.listeners, func(other *listener) bool { return other == l })
	}
}
