package watched

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/agent/objects"
)

// Deps are a watcher's surroundings.
type Deps struct {
	// Core, Node and Storage are clients of the API groups core/v1, node.k8s.io/v1 and storage.k8s.io/v1.
	Core, Node, Storage rest.Interface
	// NodeLabels returns the node's labels, for the volumes' node affinity.
	NodeLabels func() map[string]string
	// Grows says whether a storage driver of this node has volumes grow; nil means that none does.
	Grows func(driver string) bool
	// Wake is called for each pod that uses an object that changed, or that is known only now. It must not block.
	Wake func(uid types.UID)
	// Ready waits, after a request that failed with err, until the API server is ready again, and reports whether ctx let it; nil does not wait.
	Ready  func(ctx context.Context, err error) bool
	Logger *slog.Logger
}

// Watcher keeps the objects in use. Make it with [New].
type Watcher struct {
	api    api
	deps   Deps
	rounds sync.WaitGroup

	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // Run's, for what is used first while it runs; nil before and after
	// entries are those that a pod shares that comes now, pods what each pod has. One that cannot change any more is not shared with later pods: the object may have been
	// deleted and made again.
	entries map[objects.Key]*entry
	pods    map[types.UID]uses
}

// uses is what a pod uses.
type uses struct {
	keys []objects.Key
	of   map[objects.Key]*entry
}

// entry is an object in use, or all objects of a kind. The watcher's mutex guards it.
type entry struct {
	key   objects.Key
	users map[types.UID]struct{}
	since time.Time
	// stop ends the entry's goroutine; nil while it has none.
	stop context.CancelFunc
	// known says that the server has answered once; items is what it said last. err is what went wrong before it did.
	known bool
	items map[objects.Key]objects.Object
	err   error
	// final says that what is known will not change.
	final bool
}

// New returns a watcher that asks for nothing before its Run.
func New(deps Deps) *Watcher {
	return newWatcher(restAPI{core: deps.Core, node: deps.Node, storage: deps.Storage}, deps)
}

func newWatcher(server api, deps Deps) *Watcher {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Ready == nil {
		deps.Ready = func(context.Context, error) bool { return true }
	}
	if deps.Grows == nil {
		deps.Grows = func(string) bool { return false }
	}
	return &Watcher{api: server, deps: deps, entries: map[objects.Key]*entry{}, pods: map[types.UID]uses{}}
}

// Run keeps the objects in use until ctx ends. What is known then can still be read.
func (w *Watcher) Run(ctx context.Context) error {
	w.mu.Lock()
	w.ctx = ctx
	for _, u := range w.pods {
		for _, e := range u.of {
			w.begin(e)
		}
	}
	w.mu.Unlock()
	w.refresh(ctx)
	w.mu.Lock()
	w.ctx = nil
	w.mu.Unlock()
	w.rounds.Wait()
	return nil
}

// Use says that a pod uses the objects that its spec names now, and none that an earlier call named.
func (w *Watcher) Use(pod *v1.Pod) { w.set(pod.UID, KeysOf(pod)) }

// UseServices says that a pod uses the Services of its environment and nothing else: one of a manifest does.
func (w *Watcher) UseServices(pod *v1.Pod) { w.set(pod.UID, []objects.Key{servicesOf(pod)}) }

// Drop says that a pod uses nothing any more.
func (w *Watcher) Drop(uid types.UID) { w.set(uid, nil) }

func (w *Watcher) set(uid types.UID, keys []objects.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.pods[uid]
	if slices.Equal(before.keys, keys) {
		return
	}
	now := uses{keys: keys, of: make(map[objects.Key]*entry, len(keys))}
	for _, key := range keys {
		e := before.of[key]
		if e == nil {
			e = w.shared(key)
			e.users[uid] = struct{}{}
		}
		now.of[key] = e
	}
	for key, e := range before.of {
		if now.of[key] == nil {
			w.leave(uid, e)
		}
	}
	if w.pods[uid] = now; len(keys) == 0 {
		delete(w.pods, uid)
	}
}

// shared returns the entry that a pod shares that comes now. The caller holds mu.
func (w *Watcher) shared(key objects.Key) *entry {
	e := w.entries[key]
	if e == nil || e.final {
		e = &entry{key: key, users: map[types.UID]struct{}{}, items: map[objects.Key]objects.Object{}, since: time.Now()}
		w.entries[key] = e
		w.begin(e)
	}
	return e
}

// leave takes a pod from an object's users; one that nobody uses any more is forgotten. The caller holds mu.
func (w *Watcher) leave(uid types.UID, e *entry) {
	if delete(e.users, uid); len(e.users) > 0 {
		return
	}
	if w.entries[e.key] == e {
		delete(w.entries, e.key)
	}
	if e.stop != nil {
		e.stop()
	}
}

// begin starts the goroutine of an entry while the watcher runs, once. The caller holds mu.
func (w *Watcher) begin(e *entry) {
	if w.ctx == nil || w.ctx.Err() != nil || e.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(w.ctx)
	e.stop, e.since = cancel, time.Now()
	w.rounds.Go(func() {
		defer cancel()
		if e.key.Kind == objects.KindClaim {
			w.resolve(ctx, e)
			return
		}
		w.follow(ctx, e)
	})
}

// change applies a change to an entry and wakes its users where do reports that they should know.
func (w *Watcher) change(e *entry, do func() bool) {
	w.mu.Lock()
	var users []types.UID
	if do() {
		users = slices.Collect(maps.Keys(e.users))
	}
	w.mu.Unlock()
	for _, uid := range users {
		w.deps.Wake(uid)
	}
}

// replace makes list all that there is of an entry.
func (w *Watcher) replace(e *entry, list []objects.Object) {
	w.change(e, func() bool { return e.take(list) })
}

// take makes list all that there is, and reports whether the users should know. The watcher's mutex is held.
func (e *entry) take(list []objects.Object) bool {
	next := make(map[objects.Key]objects.Object, len(list))
	changed := !e.known || len(list) != len(e.items)
	for _, o := range list {
		key := objects.KeyOf(o)
		old := e.items[key]
		changed = changed || old == nil || old.GetResourceVersion() != o.GetResourceVersion() || old.GetUID() != o.GetUID()
		next[key] = trim(o)
	}
	tell := changed && (!e.known || wakes(e.key))
	e.items, e.known, e.err = next, true, nil
	e.settle()
	return tell
}

// put takes an object that is new or has changed.
func (w *Watcher) put(e *entry, o objects.Object) {
	w.change(e, func() bool {
		e.items[objects.KeyOf(o)] = trim(o)
		e.settle()
		return wakes(e.key)
	})
}

// settle notes whether what is known will not change: a claim that is bound, or an object that says so. The watcher's mutex is held.
func (e *entry) settle() {
	if e.key.Kind == objects.KindClaim {
		e.final = e.known
		return
	}
	o := e.items[e.key]
	e.final = o != nil && final(o)
}

// remove forgets an object that is no more.
func (w *Watcher) remove(e *entry, key objects.Key) {
	w.change(e, func() bool {
		_, had := e.items[key]
		delete(e.items, key)
		return had && wakes(e.key)
	})
}

// failed takes note of an error. What is known stays.
func (w *Watcher) failed(e *entry, err error) {
	w.change(e, func() bool {
		if e.known {
			return false
		}
		news := e.err == nil || e.err.Error() != err.Error()
		e.err = err
		return news
	})
}

// wakes reports whether pods want to know of changes: a Service is only read when a container starts.
func wakes(key objects.Key) bool { return key.Kind != KindService }

// trim returns an object without what nobody here reads. Of Services, of which there may be many, it keeps only what environments are made of.
func trim(o objects.Object) objects.Object {
	if s, ok := o.(*v1.Service); ok {
		out := &v1.Service{Spec: v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports}}
		out.Namespace, out.Name, out.UID, out.ResourceVersion = s.Namespace, s.Name, s.UID, s.ResourceVersion
		return out
	}
	o.SetManagedFields(nil)
	return o
}
