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

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source/objects"
)

// Deps are the dependencies of a watcher.
type Deps struct {
	// Core, Node and Storage are clients of the API groups core/v1, node.k8s.io/v1 and
	// storage.k8s.io/v1. Certificates is a client of certificates.k8s.io/v1beta1; nil if no pod gets
	// trust bundles.
	Core, Node, Storage, Certificates rest.Interface
	// NodeLabels returns the node's labels, for the volumes' node affinity.
	NodeLabels func() map[string]string
	// Grows reports whether volumes of a storage driver of this node can grow; nil means that none
	// can.
	Grows func(driver string) bool
	// Wake is called for each pod that uses an object that changed, or that became known. It must
	// not block.
	Wake func(uid types.UID)
	// Ready waits, after a request that failed with err, until the API server is ready again, and
	// reports whether ctx lasted; nil does not wait.
	Ready  func(ctx context.Context, err error) bool
	Logger *slog.Logger
}

// Watcher keeps the objects in use. Make it with [New].
type Watcher struct {
	api    api
	deps   Deps
	turns  *kube.Turns
	rounds sync.WaitGroup
	// order makes the order of certificates that of this watcher.
	order [8]byte

	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // Run's, for what is used first while it runs; nil before and after
	// entries are those that a new pod shares; pods has the entries of each pod. An entry that
	// cannot change any more is not shared with later pods, because its object may have been
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
	// stop ends the entry's goroutine; nil while there is none. turn is that of the last request; nil
	// before the first.
	stop context.CancelFunc
	turn *kube.Turn
	// known says that the server has answered once, and items is its last answer. err is the last
	// failure before the first answer.
	known bool
	items map[objects.Key]objects.Object
	err   error
	// final says that the known state will not change.
	final bool
}

// New returns a watcher. It makes no request before [Watcher.Run].
func New(deps Deps) *Watcher {
	return newWatcher(restAPI{
		core: deps.Core, node: deps.Node, storage: deps.Storage, certificates: deps.Certificates,
	}, deps)
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
	return &Watcher{
		api: server, deps: deps, turns: kube.NewTurns(), order: newOrder(),
		entries: map[objects.Key]*entry{}, pods: map[types.UID]uses{},
	}
}

// Run keeps the objects in use current until ctx ends. The last known objects can still be read
// afterwards.
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

// Use sets the objects that a pod uses: those that its spec names now, and none from an earlier
// call.
func (w *Watcher) Use(pod *v1.Pod) {
	keys := KeysOf(pod)
	if w.deps.Certificates != nil && usesBundles(pod) {
		keys = append(keys, allBundles)
	}
	w.set(pod.UID, keys)
}

// UseServices sets the Services of its environment as all that a pod uses, which is right for a pod
// of a manifest.
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
			e.join(uid)
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

// shared returns the entry that a new pod shares. The caller holds mu.
func (w *Watcher) shared(key objects.Key) *entry {
	e := w.entries[key]
	if e == nil || e.final {
		e = &entry{
			key:   key,
			users: map[types.UID]struct{}{},
			items: map[objects.Key]objects.Object{},
			since: time.Now(),
		}
		w.entries[key] = e
		w.begin(e)
	}
	return e
}

// leave removes a pod from an object's users, and the entry if it has no other user. The caller
// holds mu.
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

// begin starts an entry's goroutine once, while the watcher runs. The caller holds mu.
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

// change applies do to an entry, and wakes the entry's users if do returns true.
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

// replace sets an entry's objects to list.
func (w *Watcher) replace(e *entry, list []objects.Object) {
	w.change(e, func() bool { return e.take(list) })
}

// take sets an entry's objects to list, and reports whether to wake the users. The caller holds the
// watcher's mutex.
func (e *entry) take(list []objects.Object) bool {
	next := make(map[objects.Key]objects.Object, len(list))
	changed := !e.known || len(list) != len(e.items)
	for _, o := range list {
		key := objects.KeyOf(o)
		old := e.items[key]
		changed = changed || old == nil || old.GetResourceVersion() != o.GetResourceVersion() ||
			old.GetUID() != o.GetUID()
		next[key] = trim(o)
	}
	tell := changed && (!e.known || wakes(e.key))
	e.items, e.known, e.err = next, true, nil
	e.noteFinal()
	return tell
}

// put stores an object that is new or changed.
func (w *Watcher) put(e *entry, o objects.Object) {
	w.change(e, func() bool {
		e.items[objects.KeyOf(o)] = trim(o)
		e.noteFinal()
		return wakes(e.key)
	})
}

// noteFinal records whether the known state will not change: a claim that is bound, or an object
// that is marked immutable. The caller holds the watcher's mutex.
func (e *entry) noteFinal() {
	if e.key.Kind == objects.KindClaim {
		e.final = e.known
		return
	}
	o := e.items[e.key]
	e.final = o != nil && final(o)
}

// remove removes an object that was deleted.
func (w *Watcher) remove(e *entry, key objects.Key) {
	w.change(e, func() bool {
		_, had := e.items[key]
		delete(e.items, key)
		return had && wakes(e.key)
	})
}

// failed records an error. The known objects stay.
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

// wakes reports whether pods are woken by changes. Services are only read when a container starts,
// so they wake nobody.
func wakes(key objects.Key) bool { return key.Kind != KindService }

// trim returns an object without the parts that nobody here reads. Of a Service, of which there may
// be many, only what environments need stays.
func trim(o objects.Object) objects.Object {
	if s, ok := o.(*v1.Service); ok {
		out := &v1.Service{Spec: v1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, Ports: s.Spec.Ports}}
		out.Namespace, out.Name, out.UID, out.ResourceVersion = s.Namespace, s.Name, s.UID, s.ResourceVersion
		return out
	}
	o.SetManagedFields(nil)
	return o
}
