package events

import (
	"fmt"
	"maps"
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
	// ringSize is how many different events are kept. Each is under 2 KiB.
	ringSize = 1000
	// maxMessage is the longest message in bytes (events.k8s.io/v1 noteLengthLimit).
	maxMessage = 1024
	// After combineFrom different messages with the same object and reason within combineWithin,
	// further ones are combined into one event (the defaults of client-go's tools/record).
	combineFrom   = 10
	combineWithin = 10 * time.Minute
	// combined is the beginning of a combined event's message.
	combined = "(combined from similar events): "
)

// Recorder records events and keeps the latest.
type Recorder struct {
	node string

	mu        sync.Mutex
	ring      []*v1.Event // the latest event is the last element
	next      uint64
	limits    limiter // of new events
	heard     limiter // of what listeners hear of
	subs      map[chan v1.Event]struct{}
	listeners []func(v1.Event)
}

// New returns a recorder. node is the name of the host in the events.
func New(node string) *Recorder {
	return &Recorder{node: node, limits: limiter{}, heard: limiter{}, subs: map[chan v1.Event]struct{}{}}
}

// Pod records an event about a pod or, if container is not empty, about that container of the pod.
// kind is v1.EventTypeNormal or v1.EventTypeWarning.
func (r *Recorder) Pod(pod *v1.Pod, container, kind, reason, message string) {
	r.add(podReference(pod, container), nil, kind, reason, message)
}

// podReference returns the reference of a pod or, if container is not empty, of that container.
func podReference(pod *v1.Pod, container string) v1.ObjectReference {
	return v1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
		ResourceVersion: pod.ResourceVersion, FieldPath: fieldPath(pod, container),
	}
}

// Annotated records an event about a pod, with annotations. A repeat of the event keeps the
// annotations of the first one.
func (r *Recorder) Annotated(pod *v1.Pod, annotations map[string]string, kind, reason, message string) {
	r.add(podReference(pod, ""), annotations, kind, reason, message)
}

// Claim records an event about a claim.
func (r *Recorder) Claim(claim *v1.PersistentVolumeClaim, kind, reason, message string) {
	r.add(v1.ObjectReference{
		APIVersion:      "v1",
		Kind:            "PersistentVolumeClaim",
		Namespace:       claim.Namespace,
		Name:            claim.Name,
		UID:             claim.UID,
		ResourceVersion: claim.ResourceVersion,
	}, nil, kind, reason, message)
}

// Node records an event about the node itself.
func (r *Recorder) Node(kind, reason, message string) {
	r.add(v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node, UID: types.UID(r.node)}, nil, kind, reason,
		message)
}

// fieldPath names the container as Kubernetes' events do: spec.containers{name}.
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

func (r *Recorder) add(ref v1.ObjectReference, annotations map[string]string, kind, reason, message string) {
	now := metav1.Now()
	message = head(message, maxMessage)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.repeat(ref, kind, reason, message, now) {
		return
	}
	if !r.limits.allow(objectOf(ref, kind), now.Time) {
		return
	}
	r.heard.allow(objectOf(ref, kind), now.Time) // new events are always heard of
	r.next++
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &v1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         namespace,
			Name:              nameOf(ref.Name, now.UnixNano(), r.next),
			CreationTimestamp: now,
			Annotations:       maps.Clone(annotations),
		},
		InvolvedObject: ref, Type: kind, Reason: reason, Message: message,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source:              v1.EventSource{Component: "kubelet", Host: r.node},
		ReportingController: "kubelet", ReportingInstance: r.node,
	}
	if len(r.ring) >= ringSize {
		r.ring = slices.Delete(r.ring, 0, 1)
	}
	r.ring = append(r.ring, e)
	r.publish(e, true)
}

// repeat counts an event if the same event, or a combined event of its kind, is there already, and
// reports whether one was there. r.mu is held.
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

// sameObject reports whether two references name the same part of the same object, in any version
// of the object.
func sameObject(x, y v1.ObjectReference) bool {
	x.ResourceVersion, y.ResourceVersion = "", ""
	return x == y
}

// count counts a repeat of the event at index i and makes it the latest. The listeners hear of a
// repeat only as often as the limits allow; the next one they hear of has the whole count. r.mu is
// held.
func (r *Recorder) count(i int, message string, now metav1.Time) {
	e := r.ring[i]
	e.Message, e.LastTimestamp = message, now
	e.Count++
	r.ring = append(slices.Delete(r.ring, i, i+1), e)
	r.publish(e, r.heard.allow(objectOf(e.InvolvedObject, e.Type), now.Time))
}

// publish sends the event to the subscribers and, if heard is set, to the listeners. r.mu is held.
func (r *Recorder) publish(e *v1.Event, heard bool) {
	for _, listener := range r.listeners {
		if heard {
			listener(*e)
		}
	}
	for ch := range r.subs {
		select {
		case ch <- *e:
		default:
		}
	}
}

// List returns the kept events, the latest one last.
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

// Subscribe returns the kept events, a channel with all later events, and a function that ends the
// subscription and closes the channel.
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

// Listen calls listener with every kept event and then with each later one, also when a repeated
// event is counted, unless its object has too many events. The calls are in the events' order, and
// no new event is lost. listener must not block, and it must not use the recorder.
func (r *Recorder) Listen(listener func(v1.Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ring {
		listener(*e)
	}
	r.listeners = append(r.listeners, listener)
}

// nameOf returns the name of an event: the object's name, as much of it as fits, and a suffix that
// makes the event's name unique.
func nameOf(object string, at int64, number uint64) string {
	suffix := fmt.Sprintf(".%x.%x", at, number)
	return strings.TrimRight(head(object, validation.DNS1123SubdomainMaxLength-len(suffix)), "-.") + suffix
}

// head returns the beginning of a text: at most limit bytes, and only whole characters.
func head(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
