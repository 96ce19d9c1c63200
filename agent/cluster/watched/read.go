package watched

import (
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/source/objects"
)

// patience is how long to wait for the first answer about an object before the pod reports a
// problem. The kubelet's managers of Secrets and ConfigMaps wait as long.
const patience = time.Second

// ErrPending means that the object is being fetched. The pod is woken by the answer.
var ErrPending = errors.New("being fetched from the API server")

// ConfigMap returns a ConfigMap that a pod uses. If there is none, apierrors.IsNotFound is true for
// the error.
func (w *Watcher) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	o, err := w.one(pod, objects.Key{Kind: objects.KindConfigMap, Namespace: pod.Namespace, Name: name})
	out, _ := o.(*v1.ConfigMap)
	return out, err
}

// Secret returns a Secret that a pod uses. If there is none, apierrors.IsNotFound is true for the
// error.
func (w *Watcher) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	o, err := w.one(pod, objects.Key{Kind: objects.KindSecret, Namespace: pod.Namespace, Name: name})
	out, _ := o.(*v1.Secret)
	return out, err
}

// RuntimeClass returns a RuntimeClass, nil if there is none or it is not known yet.
func (w *Watcher) RuntimeClass(name string) *nodev1.RuntimeClass {
	items, _ := w.all(allClasses)
	out, _ := items[objects.Key{Kind: objects.KindRuntimeClass, Name: name}].(*nodev1.RuntimeClass)
	return out
}

// Services returns the known Services that a pod's environment may name. read says whether the
// server has listed them at least once.
func (w *Watcher) Services(pod *v1.Pod) (services []*v1.Service, read bool) {
	items, err := w.items(pod, servicesOf(pod))
	for _, o := range items {
		if s, ok := o.(*v1.Service); ok && (s.Namespace == pod.Namespace || objects.KeyOf(s) == master) {
			services = append(services, s)
		}
	}
	return services, err == nil
}

// Await returns the first object whose first answer is still missing, and until when that is not a
// problem. The name is empty if all objects of the pod are known, or known to be unavailable.
func (w *Watcher) Await(pod *v1.Pod) (object string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := w.pods[pod.UID]
	for _, key := range used.keys {
		if e := used.of[key]; e.pending() {
			return describe(key), e.since.Add(patience)
		}
	}
	return "", time.Time{}
}

// pending reports whether the first answer is missing and not late. The caller holds the watcher's
// mutex.
func (e *entry) pending() bool { return !e.known && e.err == nil && time.Since(e.since) < patience }

// one returns a single object that a pod uses.
func (w *Watcher) one(pod *v1.Pod, key objects.Key) (objects.Object, error) {
	items, err := w.items(pod, key)
	if err != nil {
		return nil, err
	}
	if o := items[key]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(singular(key.Kind), key.Name)
}

// items returns what a pod knows under a key.
func (w *Watcher) items(pod *v1.Pod, key objects.Key) (map[objects.Key]objects.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return known(w.pods[pod.UID].of[key], key)
}

// all returns all objects of a kind.
func (w *Watcher) all(key objects.Key) (map[objects.Key]objects.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return known(w.entries[key], key)
}

// known returns what is known of an entry, nil if no pod uses the key. The caller holds the
// watcher's mutex.
func known(e *entry, key objects.Key) (map[objects.Key]objects.Object, error) {
	switch {
	case e == nil:
		return nil, fmt.Errorf("object %q/%q not registered", key.Namespace, key.Name)
	case e.known:
		return maps.Clone(e.items), nil
	case e.pending():
		return nil, fmt.Errorf("%s: %w", describe(key), ErrPending)
	case e.err == nil:
		return nil, fmt.Errorf("failed to sync %s cache: timed out waiting for the condition", singular(key.Kind))
	case key.Kind == objects.KindClaim, apierrors.IsForbidden(e.err):
		return nil, e.err
	}
	return nil, fmt.Errorf("failed to sync %s cache: %v", singular(key.Kind),
		e.err) //nolint:errorlint // that the server found nothing there does not mean that the object is not
}
