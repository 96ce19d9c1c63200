// Package events keeps the node's latest Kubernetes events in memory.
//
// Purpose: a ring of v1.Event, with what repeats counted rather than repeated, for "berth events", "berth describe" and watchers; a later API
// writer subscribes to it.
//
// Truth owned: the events of this run of the agent.
//
// Concurrency: a [Recorder] is safe for concurrent use. Subscribers that do not keep up lose events, never block the writer.
package events

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ringSize is how many different events are kept; each is under 1 KiB.
const ringSize = 1000

// Recorder takes events and keeps the latest.
type Recorder struct {
	node string

	mu   sync.Mutex
	ring []*v1.Event // oldest first
	next uint64
	subs map[chan v1.Event]struct{}
}

// New returns a recorder that names node as the events' host.
func New(node string) *Recorder {
	return &Recorder{node: node, subs: map[chan v1.Event]struct{}{}}
}

// Pod records an event about a pod or, where container is set, about that container of it. kind is v1.EventTypeNormal or v1.EventTypeWarning.
func (r *Recorder) Pod(pod *v1.Pod, container, kind, reason, message string) {
	ref := v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		FieldPath: fieldPath(pod, container),
	}
	r.add(ref, kind, reason, message)
}

// Node records an event about the node itself.
func (r *Recorder) Node(kind, reason, message string) {
	r.add(v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node, UID: types.UID(r.node)}, kind, reason, message)
}

// fieldPath names the container as upstream's events do: spec.containers{name}.
func fieldPath(pod *v1.Pod, container string) string {
	if container == "" {
		return ""
	}
	for i := range pod.Spec.InitContainers {
		if pod.Spec.InitContainers[i].Name == container {
			return "spec.initContainers{" + container + "}"
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == container {
			return "spec.ephemeralContainers{" + container + "}"
		}
	}
	return "spec.containers{" + container + "}"
}

func (r *Recorder) add(ref v1.ObjectReference, kind, reason, message string) {
	now := metav1.NewTime(time.Now())
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.ring) - 1; i >= 0; i-- {
		old := r.ring[i]
		if old.Reason == reason && old.Message == message && old.Type == kind && old.InvolvedObject == ref {
			e := *old
			e.Count++
			e.LastTimestamp = now
			r.ring = append(append(r.ring[:i:i], r.ring[i+1:]...), &e)
			r.publish(e)
			return
		}
	}
	r.next++
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &v1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%x.%x", ref.Name, now.UnixNano(), r.next), CreationTimestamp: now},
		InvolvedObject: ref, Type: kind, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              v1.EventSource{Component: "kubelet", Host: r.node},
		ReportingController: "kubelet", ReportingInstance: r.node,
	}
	if len(r.ring) >= ringSize {
		r.ring = r.ring[1:]
	}
	r.ring = append(r.ring, e)
	r.publish(*e)
}

func (r *Recorder) publish(e v1.Event) {
	for ch := range r.subs {
		select {
		case ch <- e:
		default:
		}
	}
}

// List returns the kept events, those that happened last at the end.
func (r *Recorder) List() []v1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]v1.Event, 0, len(r.ring))
	for _, e := range r.ring {
		out = append(out, *e)
	}
	return out
}

// Subscribe returns the kept events, a channel of those that follow, and a function that ends the subscription and closes the channel.
func (r *Recorder) Subscribe() (kept []v1.Event, following <-chan v1.Event, cancel func()) {
	kept = r.List()
	ch := make(chan v1.Event, 64)
	r.mu.Lock()
	r.subs[ch] = struct{}{}
	r.mu.Unlock()
	var once sync.Once
	return kept, ch, func() {
		once.Do(func() {
			r.mu.Lock()
			delete(r.subs, ch)
			r.mu.Unlock()
			close(ch)
		})
	}
}
