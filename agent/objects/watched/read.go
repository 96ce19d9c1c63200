package watched

import (
	"errors"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/objects"
)

// patience is how long an object's first answer is waited for before that is a pod's problem: the kubelet's secret and ConfigMap managers wait as long.
const patience = time.Second

// ErrPending means that the server is being asked for the object: the pod is woken when it answers.
var ErrPending = errors.New("being fetched from the API server")

// ConfigMap returns a ConfigMap of a pod's. An error that apierrors.IsNotFound reports means that there is none.
func (w *Watcher) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	o, err := w.one(pod, objects.Key{Kind: objects.KindConfigMap, Namespace: pod.Namespace, Name: name})
	out, _ := o.(*v1.ConfigMap)
	return out, err
}

// Secret returns a Secret of a pod's. An error that apierrors.IsNotFound reports means that there is none.
func (w *Watcher) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	o, err := w.one(pod, objects.Key{Kind: objects.KindSecret, Namespace: pod.Namespace, Name: name})
	out, _ := o.(*v1.Secret)
	return out, err
}

// RuntimeClass returns a RuntimeClass, nil where there is none or it is not known yet.
func (w *Watcher) RuntimeClass(name string) *nodev1.RuntimeClass {
	items, _ := w.all(allClasses)
	out, _ := items[objects.Key{Kind: objects.KindRuntimeClass, Name: name}].(*nodev1.RuntimeClass)
	return out
}

// Services returns the Services that a pod's environment may name, as far as they are known; read says whether the server has told them once.
func (w *Watcher) Services(pod *v1.Pod) (services []*v1.Service, read bool) {
	items, err := w.items(pod, servicesOf(pod))
	for _, o := range items {
		if s, ok := o.(*v1.Service); ok && (s.Namespace == pod.Namespace || objects.KeyOf(s) == master) {
			services = append(services, s)
		}
	}
	return services, err == nil
}

// Await returns the first object that the server is still being asked for, and until when that is no problem yet; empty where all that the pod uses is
// known, or known not to be had.
func (w *Watcher) Await(pod *v1.Pod) (object string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	used := w.pods[pod.UID]
	for _, key := range used.keys {
		if e := used.of[key]; e.pending() {
			return told(key), e.since.Add(patience)
		}
	}
	return "", time.Time{}
}

// pending reports whether the first answer is on its way, and not late. The watcher's mutex is held.
func (e *entry) pending() bool { return !e.known && e.err == nil && time.Since(e.since) < patience }

// one returns a single object of a pod's.
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

// known returns what is known of an entry, nil where nobody uses the key. The watcher's mutex is held.
func known(e *entry, key objects.Key) (map[objects.Key]objects.Object, error) {
	switch {
	case e == nil:
		return nil, fmt.Errorf("object %q/%q not registered", key.Namespace, key.Name)
	case e.known:
		return maps.Clone(e.items), nil
	case e.pending():
		return nil, fmt.Errorf("%s: %w", told(key), ErrPending)
	case e.err == nil:
		return nil, fmt.Errorf("failed to sync %s cache: timed out waiting for the condition", singular(key.Kind))
	case key.Kind == objects.KindClaim, apierrors.IsForbidden(e.err):
		return nil, e.err
	}
	return nil, fmt.Errorf("failed to sync %s cache: %v", singular(key.Kind), e.err) //nolint:errorlint // that the server found nothing there does not mean that the object is not
}
