package control

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// gatedInformers returns a factory for the controllers. Of kinds for which the API server has an
// informer it gives that one, so that each object is in memory once; of others, new ones. What the
// API server's informers see waits for the gate: a controller registers its handlers while it is
// made, and expects no call before it runs, but these informers run already.
func gatedInformers(
	ctx context.Context, client kubernetes.Interface, server informers.SharedInformerFactory, gate <-chan struct{},
) (informers.SharedInformerFactory, error) {
	factory := informers.NewSharedInformerFactory(client, resync)
	// Only of those that run does a factory tell the kinds.
	server.StartWithContext(ctx)
	for kind := range server.WaitForCacheSyncWithContext(ctx).Synced {
		object, ok := reflect.New(kind.Elem()).Interface().(runtime.Object)
		if !ok {
			return nil, fmt.Errorf("share the API server's informer of %s: it is no kind of object", kind)
		}
		shared := gated{SharedIndexInformer: server.InformerFor(object, nil), gate: gate, done: ctx.Done()}
		factory.InformerFor(object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return shared })
	}
	return factory, nil
}

// gated is an informer that somebody else runs. Its handlers are not called before the channel gate
// is closed; what they miss until then they get afterwards, in its order. When done is closed,
// nobody waits any more.
type gated struct {
	cache.SharedIndexInformer
	gate, done <-chan struct{}
}

// behind returns the handler as the informer sees it.
func (i gated) behind(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return gatedHandler{handler: h, gate: i.gate, done: i.done}
}

// AddEventHandler registers a handler, which waits for the gate.
func (i gated) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(i.behind(h))
}

// AddEventHandlerWithResyncPeriod does the same for one that wants to see every object at times.
func (i gated) AddEventHandlerWithResyncPeriod(
	h cache.ResourceEventHandler, period time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(i.behind(h), period)
}

// AddEventHandlerWithOptions does the same for one with options.
func (i gated) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, options cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(i.behind(h), options)
}

// Run does nothing: the informer runs.
func (gated) Run(<-chan struct{}) {}

// RunWithContext does nothing: the informer runs.
func (gated) RunWithContext(context.Context) {}

// gatedHandler has an informer wait for the gate. An informer has a goroutine for each handler, and
// keeps what it has not told it yet.
type gatedHandler struct {
	handler    cache.ResourceEventHandler
	gate, done <-chan struct{}
}

// OnAdd is called for a new object.
func (h gatedHandler) OnAdd(object any, initial bool) {
	if h.open() {
		h.handler.OnAdd(object, initial)
	}
}

// OnUpdate is called for an object that changed.
func (h gatedHandler) OnUpdate(before, after any) {
	if h.open() {
		h.handler.OnUpdate(before, after)
	}
}

// OnDelete is called for an object that is gone.
func (h gatedHandler) OnDelete(object any) {
	if h.open() {
		h.handler.OnDelete(object)
	}
}

// open waits for the gate, and says whether it was opened.
func (h gatedHandler) open() bool {
	select {
	case <-h.gate:
		return true
	case <-h.done:
		return false
	}
}
