package writer

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/tasks"
)

const (
	// maxWaiting bounds how many events wait, each under 2 KiB; maxKnown, how many are remembered as written, by name.
	maxWaiting = 1000
	maxKnown   = 2000
	// maxRefusals is how often an event is tried that the API server itself fails at, as client-go's recorder does, so that one event does not hold up all others.
	maxRefusals = 12
	// yieldMost is how long an event waits for what is more important.
	yieldMost = 10 * time.Second
	// requestTimeout is how long a request may last; flushTimeout, how long an agent that ends goes on writing.
	requestTimeout = 30 * time.Second
	flushTimeout   = 2 * time.Second
)

// Config says how quickly a writer may write.
type Config struct {
	// QPS is how many requests are sent per second, 0 for no bound; Burst how many at once.
	QPS, Burst int
}

// Deps are a writer's surroundings.
type Deps struct {
	// Core is a client of the API group core/v1 that bounds no rates: this one's is apart from that of other requests.
	Core rest.Interface
	// Busy, where it is set, returns what is closed once the node has nothing to do that is more important than events, nil where it has nothing. Events wait for it for a few
	// seconds at most, and warnings not at all.
	Busy   func() <-chan struct{}
	Logger *slog.Logger
}

// Writer writes events to the API server. Make it with [New].
type Writer struct {
	deps  Deps
	limit flowcontrol.RateLimiter // nil for none
	bell  chan struct{}

	mu sync.Mutex
	// waiting are the events to be written, the oldest first; byName finds them.
	waiting *list.List
	byName  map[types.NamespacedName]*list.Element
	// known are the events that the API server has, the one that was written first in front.
	known *known
	// warnings counts those that wait.
	warnings int
	// dropped counts those that were given up since it was last told.
	dropped int
}

// New returns a writer that writes nothing before its Run.
func New(cfg Config, deps Deps) *Writer {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Writer{deps: deps, bell: make(chan struct{}, 1), waiting: list.New(), byName: map[types.NamespacedName]*list.Element{}, known: newKnown(maxKnown)}
	if cfg.QPS > 0 {
		w.limit = flowcontrol.NewTokenBucketRateLimiter(float32(cfg.QPS), max(cfg.Burst, 1))
	}
	return w
}

// Take takes an event as it is now.
func (w *Writer) Take(e v1.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := nameOf(&e)
	if at := w.byName[name]; at != nil {
		at.Value = e
		return
	}
	if w.waiting.Len() >= maxWaiting {
		w.pop(w.waiting.Front())
		w.dropped++
	}
	w.byName[name] = w.waiting.PushBack(e)
	w.count(&e, 1)
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

// pop takes an event from those that wait. The caller holds mu.
func (w *Writer) pop(at *list.Element) v1.Event {
	e, _ := w.waiting.Remove(at).(v1.Event)
	delete(w.byName, nameOf(&e))
	w.count(&e, -1)
	return e
}

// count keeps warnings true. The caller holds mu.
func (w *Writer) count(e *v1.Event, n int) {
	if e.Type == v1.EventTypeWarning {
		w.warnings += n
	}
}

// next takes the oldest event; ok is false where none waits.
func (w *Writer) next() (e v1.Event, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dropped > 0 {
		w.deps.Logger.Warn("events were given up: the API server was away for too long", "count", w.dropped)
		w.dropped = 0
	}
	if w.waiting.Len() == 0 {
		return e, false
	}
	return w.pop(w.waiting.Front()), true
}

// again puts an event back to the front, unless a newer version of it waits.
func (w *Writer) again(e v1.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := nameOf(&e); w.byName[name] == nil {
		w.byName[name] = w.waiting.PushFront(e)
		w.count(&e, 1)
	}
}

// yield waits until the node has nothing more important to do than to tell of the oldest event, which has waited since then, or a warning waits.
func (w *Writer) yield(ctx context.Context, e *v1.Event) {
	timer := time.NewTimer(yieldMost - time.Since(e.LastTimestamp.Time))
	defer timer.Stop()
	for w.deps.Busy != nil && ctx.Err() == nil {
		w.mu.Lock()
		warnings := w.warnings
		w.mu.Unlock()
		calm := w.deps.Busy()
		if calm == nil || warnings > 0 || e.Type == v1.EventTypeWarning {
			return
		}
		select {
		case <-calm:
		case <-timer.C:
			return
		case <-w.bell:
		case <-ctx.Done():
		}
	}
}

// Run writes events until ctx ends, and then, for a moment, those that still wait.
func (w *Writer) Run(ctx context.Context) error {
	failures := 0
	for {
		e, ok := w.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-w.bell:
				continue
			}
		}
		w.yield(ctx, &e)
		err := w.write(ctx, &e)
		if ctx.Err() != nil {
			if err != nil {
				w.again(e)
			}
			w.flush()
			return nil
		}
		if err == nil || w.hopeless(&e, err, failures) {
			failures = 0
			continue
		}
		w.again(e)
		if !tasks.Sleep(ctx, cluster.Retry.Delay(failures+1, err)) {
			w.flush()
			return nil
		}
		failures++
	}
}

// flush writes what waits, until the first failure.
func (w *Writer) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	for e, ok := w.next(); ok; e, ok = w.next() {
		if err := w.write(ctx, &e); err != nil {
			return
		}
	}
}

// hopeless reports whether an event that could not be written is given up. An API server that is away is waited for.
func (w *Writer) hopeless(e *v1.Event, err error, failures int) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsTooManyRequests(err) {
		return false
	}
	if status.Status().Code >= 500 && failures+1 < maxRefusals {
		return false
	}
	w.deps.Logger.Debug("the API server refused an event", "object", e.InvolvedObject.Kind+" "+e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "reason", e.Reason, "err", err)
	return true
}

// write creates the event, or patches it where the API server has it.
func (w *Writer) write(ctx context.Context, e *v1.Event) error {
	if w.limit != nil {
		if err := w.limit.Wait(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	name := nameOf(e)
	if w.has(name) {
		err := w.patch(ctx, e)
		if !apierrors.IsNotFound(err) {
			return err
		}
		w.forget(name) // the API server keeps events for an hour only
	}
	err := w.create(ctx, e)
	if apierrors.IsAlreadyExists(err) {
		err = w.patch(ctx, e) // an answer was lost
	}
	if err == nil {
		w.remember(name)
	}
	return err
}

func (w *Writer) create(ctx context.Context, e *v1.Event) error {
	body := e.DeepCopy()
	body.CreationTimestamp = metav1.Time{}
	return w.deps.Core.Post().Namespace(e.Namespace).Resource("events").Body(body).Do(ctx).Error()
}

func (w *Writer) patch(ctx context.Context, e *v1.Event) error {
	body, err := json.Marshal(map[string]any{"count": e.Count, "lastTimestamp": e.LastTimestamp, "message": e.Message})
	if err != nil {
		return err
	}
	return w.deps.Core.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(body).Do(ctx).Error()
}

func (w *Writer) has(name types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.known.has(name)
}

func (w *Writer) remember(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known.add(name)
}

func (w *Writer) forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known.remove(name)
}

func nameOf(e *v1.Event) types.NamespacedName {
	return types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
}
