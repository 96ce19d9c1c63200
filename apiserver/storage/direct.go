package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// events are the kind without a watch cache that comes by the thousand: others would wait for them.
const events = "events"

// Direct makes storage that calls the functions of a store.
type Direct struct {
	client func() *kubernetes.Client
	// shared is the client of the kinds that few clients watch: one stream has all their watches. A
	// kind with a cache has a client of its own, because the store tells a stream how far it is only
	// when it is that far with each of the stream's watches, and reads of a cache wait to be told. So
	// have events, and a kind that can go while the server runs: its watches end with its client.
	shared    *kubernetes.Client
	compactor etcd3.Compactor
	end       func()
}

// New returns storage in the store whose clients client makes. compaction is how often revisions
// that are older than that are dropped, as kube-apiserver's flag --etcd-compaction-interval says.
// The caller calls Close after the servers have ended, and before the store does.
func New(client func() *kubernetes.Client, compaction time.Duration) *Direct {
	shared := client()
	shared.KV = etcd3.NewETCDLatencyTracker(shared.KV) // the compactor reads it at any time
	// Upstream asks each of a client's endpoints for this, and such a client has none.
	feature.DefaultFeatureSupportChecker.CheckClient(shared.Ctx(), process{shared.Client}, storage.RequestWatchProgress)
	compactor := etcd3.NewCompactor(shared.Client, compaction, clock.RealClock{}, nil)
	return &Direct{client: client, shared: shared, compactor: compactor, end: sync.OnceFunc(func() {
		compactor.Stop()
		_ = shared.Close() // says only that its context has ended
	})}
}

// Close ends the compaction, and the watches of the kinds that share a client.
func (d *Direct) Close() { d.end() }

// process is a client whose only endpoint is this process.
type process struct{ *clientv3.Client }

// Endpoints returns a name for it.
func (process) Endpoints() []string { return []string{"this process"} }

// Getter returns the options of inner with storage in the store. etcd says which kinds have a watch
// cache.
func (d *Direct) Getter(inner generic.RESTOptionsGetter, etcd options.EtcdOptions) (generic.RESTOptionsGetter, error) {
	sizes, err := options.ParseWatchCacheSizes(etcd.WatchCacheSizes)
	if err != nil {
		return nil, fmt.Errorf("read --watch-cache-sizes: %w", err)
	}
	return &getter{inner: inner, direct: d, caches: etcd.EnableWatchCache, sizes: sizes}, nil
}

// getter is a generic.RESTOptionsGetter.
type getter struct {
	inner  generic.RESTOptionsGetter
	direct *Direct
	caches bool
	sizes  map[schema.GroupResource]int
}

// GetRESTOptions returns the options of a kind's registry.
func (g *getter) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	o, err := g.inner.GetRESTOptions(resource, example)
	if err != nil {
		return generic.RESTOptions{}, err
	}
	switch size, ok := g.sizes[resource]; {
	case g.caches && (!ok || size > 0):
		o.Decorator = g.direct.cached
	case ok && resource.Resource != events:
		o.Decorator = g.direct.seldom
	default:
		o.Decorator = g.direct.often
	}
	return o, nil
}

// seldom makes storage without a watch cache for a kind that few clients watch. It is a
// generic.StorageDecorator.
func (d *Direct) seldom(config *storagebackend.ConfigForResource, prefix string,
	_ func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	kind, end, err := d.stored(d.shared, config, prefix, newFunc, newListFunc)
	return bookmarks{kind}, end, err
}

// bookmarks is storage whose watches send bookmarks to clients that understand them, as those of a
// watch cache do. A client that goes on after a long time without a change then need not list all
// anew because the revision that it knows was dropped.
type bookmarks struct{ storage.Interface }

// Watch begins a watch. opts say whether its client understands bookmarks.
func (b bookmarks) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	opts.ProgressNotify = opts.ProgressNotify || opts.Predicate.AllowWatchBookmarks
	return b.Interface.Watch(ctx, key, opts)
}

// often makes storage without a watch cache for a kind that changes all the time, or that can go. It
// is a generic.StorageDecorator.
func (d *Direct) often(config *storagebackend.ConfigForResource, prefix string,
	_ func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	kind, end, err := d.uncached(config, prefix, newFunc, newListFunc)
	return bookmarks{kind}, end, err
}

// uncached makes storage without a watch cache, with a client of its own.
func (d *Direct) uncached(config *storagebackend.ConfigForResource, prefix string,
	newFunc, newListFunc func() runtime.Object,
) (storage.Interface, factory.DestroyFunc, error) {
	client := d.client()
	client.KV = etcd3.NewETCDLatencyTracker(client.KV)
	end := func() { _ = client.Close() } // its error says only that its context has ended
	kind, endKind, err := d.stored(client, config, prefix, newFunc, newListFunc)
	if err != nil {
		end()
		return nil, nil, err
	}
	return kind, sync.OnceFunc(func() {
		endKind()
		end()
	}), nil
}

// stored makes storage whose requests go through a client, and returns what ends it but not the
// client.
func (d *Direct) stored(client *kubernetes.Client, config *storagebackend.ConfigForResource, prefix string,
	newFunc, newListFunc func() runtime.Object,
) (storage.Interface, factory.DestroyFunc, error) {
	transformer := config.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	versioner := storage.APIObjectVersioner{}
	decoder := etcd3.NewDefaultDecoder(config.Codec, versioner)
	corrupt := utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion)
	if corrupt {
		transformer = etcd3.WithCorruptObjErrorHandlingTransformer(transformer)
		decoder = etcd3.WithCorruptObjErrorHandlingDecoder(decoder)
	}
	kind, err := etcd3.New(client, d.compactor, config.Codec, newFunc, newListFunc, config.Prefix, prefix,
		config.GroupResource, transformer, config.LeaseManagerConfig, decoder, versioner)
	if err != nil {
		return nil, nil, fmt.Errorf("make the storage of %s: %w", config.GroupResource, err)
	}
	end := sync.OnceFunc(kind.Close) // a registry and those of its subresources share it, and each ends it
	if corrupt {
		return etcd3.NewStoreWithUnsafeCorruptObjectDeletion(kind, config.GroupResource), end, nil
	}
	return kind, end, nil
}

// cached makes storage with a watch cache. It is a generic.StorageDecorator.
func (d *Direct) cached(config *storagebackend.ConfigForResource, prefix string,
	keyFunc func(runtime.Object) (string, error), newFunc, newListFunc func() runtime.Object,
	attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	kind, endKind, err := d.uncached(config, prefix, newFunc, newListFunc)
	if err != nil {
		return nil, nil, err
	}
	c, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: kind, Versioner: storage.APIObjectVersioner{}, Codec: config.Codec,
		GroupResource: config.GroupResource, ResourcePrefix: prefix, EventsHistoryWindow: config.EventsHistoryWindow,
		KeyFunc: keyFunc, NewFunc: newFunc, NewListFunc: newListFunc,
		GetAttrsFunc: attributes, IndexerFuncs: triggers, Indexers: indexers,
	})
	if err != nil {
		endKind()
		return nil, nil, fmt.Errorf("make the watch cache of %s: %w", config.GroupResource, err)
	}
	delegator := cacher.NewCacheDelegator(c, kind)
	return delegator, sync.OnceFunc(func() {
		delegator.Stop()
		c.Stop()
		endKind()
	}), nil
}
