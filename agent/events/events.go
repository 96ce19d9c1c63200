package events

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// ringSize is how many different events are kept; each is under 2 KiB.
	ringSize = 1000
	// maxMessage is the longest message in bytes (events.k8s.io/v1 noteLengthLimit).
	maxMessage = 1024
	// From combineFrom different messages on with the same object and reason within combineWithin, further ones are combined into one event
	// (client-go's tools/record defaults).
	combineFrom   = 10
	combineWithin = 10 * time.Minute
	// combined begins the message of such an event.
	combined = "(combined from similar events): "
)

// Recorder takes events and keeps the latest.
type Recorder struct {
	node string

	mu     sync.Mutex
	ring   []*v1.Event // the one that happened last at the end
	next   uint64
	limits limiter
	subs   map[chan v1.Event]struct{}
	tell   []func(v1.Event)
}

// New returns a recorder that names node as the events' host.
func New(node string) *Recorder {
	return &Recorder{node: node, limits: limiter{}, subs: map[chan v1.Event]struct{}{}}
}

// Pod records an event about a pod or, where container is set, about that container of it. kind is v1.EventTypeNormal or v1.EventTypeWarning.
func (r *Recorder) Pod(pod *v1.Pod, container, kind, reason, message string) {
	ref := v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fieldPath(pod, container),
	}
	r.add(ref, kind, reason, message)
}

// Claim records an event about a claim.
func (r *Recorder) Claim(claim *v1.PersistentVolumeClaim, kind, reason, message string) {
	r.add(v1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
	}, kind, reason, message)
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
	now := metav1.Now()
	message = head(message, maxMessage)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repeat(ref, kind, reason, message, now) {
		return
	}
	if !r.limits.allow(object{ref.UID, ref.Namespace, ref.Name, kind}, now.Time) {
		return
	}
	r.next++
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &v1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: nameOf(ref.Name, now.UnixNano(), r.next), CreationTimestamp: now},
		InvolvedObject: ref, Type: kind, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              v1.EventSource{Component: "kubelet", Host: r.node},
		ReportingController: "kubelet", ReportingInstance: r.node,
	}
	if len(r.ring) >= ringSize {
		r.ring = slices.Delete(r.ring, 0, 1)
	}
	r.ring = append(r.ring, e)
	r.publish(e)
}

// repeat counts an event at the one that it repeats, or at the one that combines those of its kind, and reports whether there was one; r.mu is held.
func (r *Recorder) repeat(ref v1.ObjectReference, kind, reason, message string, now metav1.Time) bool {
	similar, last := 0, -1
	for i := len(r.ring) - 1; i >= 0; i-- {
		old := r.ring[i]
		if old.Reason != reason || old.Type != kind || !sameObject(old.InvolvedObject, ref) {
			continue
		}
		if old.Message == message {
			r.count(i, message, now)
			return true
		}
		if now.Sub(old.LastTimestamp.Time) <= combineWithin {
			if similar++; last < 0 || strings.HasPrefix(old.Message, combined) {
				last = i
			}
		}
	}
	if similar < combineFrom {
		return false
	}
	r.count(last, head(combined+message, maxMessage), now)
	return true
}

// sameObject reports whether two references name the same part of the same object, whatever its version.
func sameObject(x, y v1.ObjectReference) bool {
	x.ResourceVersion, y.ResourceVersion = "", ""
	return x == y
}

// count counts a repeat of the event at i, which becomes the latest; r.mu is held.
func (r *Recorder) count(i int, message string, now metav1.Time) {
	e := r.ring[i]
	e.Message, e.LastTimestamp = message, now
	e.Count++
	r.ring = append(slices.Delete(r.ring, i, i+1), e)
	r.publish(e)
}

// publish hands the event to those who follow; r.mu is held.
func (r *Recorder) publish(e *v1.Event) {
	for _, tell := range r.tell {
		tell(*e)
	}
	for ch := range r.subs {
		select {
		case ch <- *e:
		default:
		}
	}
}

// List returns the kept events, those that happened last at the end.
func (r *Recorder) List() []v1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list()
}

func (r *Recorder) list() []v1.Event {
	out := make([]v1.Event, 0, len(r.ring))
	for _, e := range r.ring {
		out = append(out, *e)
	}
	return out
}

// Subscribe returns the kept events, a channel of all that follow, and a function that ends the subscription and closes the channel.
func (r *Recorder) Subscribe() (kept []v1.Event, following <-chan v1.Event, cancel func()) {
	ch := make(chan v1.Event, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs[ch] = struct{}{}
	return r.list(), ch, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.subs[ch]; ok {
			delete(r.subs, ch)
			close(ch)
		}
	}
}

// Tell has every kept event told of, and each that follows, also one that is counted again: in their order, and none is lost. tell must not block, nor use the recorder.
func (r *Recorder) Tell(tell func(v1.Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ring {
		tell(*e)
	}
	r.tell = append(r.tell, tell)
}

// nameOf returns the name of an object's event: the object's, as far as a name may be long, and what makes it the only one.
func nameOf(object string, at int64, number uint64) string {
	suffix := fmt.Sprintf(".%x.%x", at, number)
	return strings.TrimRight(head(object, validation.DNS1123SubdomainMaxLength-len(suffix)), "-.") + suffix
}

// head returns the first bytes of a text, whole characters of it.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
