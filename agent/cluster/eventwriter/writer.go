package eventwriter

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

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
)

const (
	// maxWaiting limits how many events wait, each under 2 KiB. maxKnown limits how many names of
	// written events are remembered.
	maxWaiting = 1000
	maxKnown   = 2000
	// maxRefusals is how often to try an event at which the API server itself fails, as in
	// client-go's recorder, so that one event does not delay all others.
	maxRefusals = 12
	// yieldMost is how long an event waits for more important work.
	yieldMost = 10 * time.Second
	// requestTimeout limits a request. flushTimeout is how long an agent that ends continues to
	// write.
	requestTimeout = 30 * time.Second
	flushTimeout   = 2 * time.Second
)

// Config limits the rate of a writer.
type Config struct {
	// QPS is how many requests are sent per second, 0 for no limit. Burst is how many are sent at
	// the same moment.
	QPS, Burst int
}

// Deps are the dependencies of a writer.
type Deps struct {
	// Core is a client of the API group core/v1 without a rate limit: the writer has its own limit,
	// apart from that of other requests.
	Core rest.Interface
	// Busy, if set, returns a channel that is closed when the node has no more important work than
	// events; nil if it has none now. Events wait for the channel a few seconds at most. Warnings
	// do not wait.
	Busy   func() <-chan struct{}
	Logger *slog.Logger
}

// Writer writes events to the API server. Make it with [New].
type Writer struct {
	deps  Deps
	limit flowcontrol.RateLimiter // nil for none
	// added holds a notification after an event came.
	added notify.Signal

	mu sync.Mutex
	// waiting are the events to be written, the oldest first. byName finds them.
	waiting *list.List
	byName  map[types.NamespacedName]*list.Element
	// known are the events that the API server has, in the order of their first write.
	known *known
	// warnings counts the warnings that wait.
	warnings int
	// dropped counts the events that were dropped since the last log line about them.
	dropped int
}

// New returns a writer. It writes nothing before [Writer.Run].
func New(cfg Config, deps Deps) *Writer {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	w := &Writer{
		deps:    deps,
		added:   notify.New(),
		waiting: list.New(),
		byName:  map[types.NamespacedName]*list.Element{},
		known:   newKnown(maxKnown),
	}
	if cfg.QPS > 0 {
		w.limit = flowcontrol.NewTokenBucketRateLimiter(float32(cfg.QPS), max(cfg.Burst, 1))
	}
	return w
}

// Take takes an event in its current state.
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
	w.added.Notify()
}

// pop removes an event from those that wait. The caller holds mu.
func (w *Writer) pop(at *list.Element) v1.Event {
	e, _ := w.waiting.Remove(at).(v1.Event)
	delete(w.byName, nameOf(&e))
	w.count(&e, -1)
	return e
}

// count keeps warnings correct. The caller holds mu.
func (w *Writer) count(e *v1.Event, n int) {
	if e.Type == v1.EventTypeWarning {
		w.warnings += n
	}
}

// next takes the oldest event; ok is false if none waits.
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

// again puts an event back at the front, unless a newer version of it waits.
func (w *Writer) again(e v1.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := nameOf(&e); w.byName[name] == nil {
		w.byName[name] = w.waiting.PushFront(e)
		w.count(&e, 1)
	}
}

// yield waits until the node has no more important work than to report the oldest event, until that
// event has waited for [yieldMost], or until a warning waits.
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
		case <-w.added:
		case <-ctx.Done():
		}
	}
}

// Run writes events until ctx ends, and then, for [flushTimeout], those that still wait.
func (w *Writer) Run(ctx context.Context) error {
	failures := 0
	for {
		e, ok := w.next()
		if !ok {
			select {
			case <-ctx.Done():
				return nil
			case <-w.added:
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
		if !retry.Sleep(ctx, kube.Retry.Delay(failures+1, err)) {
			w.flush()
			return nil
		}
		failures++
	}
}

// flush writes the waiting events until the first failure.
func (w *Writer) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	for e, ok := w.next(); ok; e, ok = w.next() {
		if err := w.write(ctx, &e); err != nil {
			return
		}
	}
}

// hopeless reports whether to drop an event that could not be written. It is false while the API
// server is away.
func (w *Writer) hopeless(e *v1.Event, err error, failures int) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || apierrors.IsTooManyRequests(err) {
		return false
	}
	if status.Status().Code >= 500 && failures+1 < maxRefusals {
		return false
	}
	w.deps.Logger.Debug("the API server refused an event",
		"object", e.InvolvedObject.Kind+" "+e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "reason", e.Reason,
		"err", err)
	return true
}

// write creates the event, or patches it if the API server has it.
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
		err = w.patch(ctx, e) // an earlier answer was lost
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
	return w.deps.Core.Patch(types.StrategicMergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).
		Body(body).Do(ctx).Error()
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
