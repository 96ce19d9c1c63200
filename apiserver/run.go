package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"

	"github.com/berthd/berth/apiserver/control"
	"github.com/berthd/berth/apiserver/pki"
	_ "github.com/berthd/berth/apiserver/queues" // the metrics of work queues, before Kubernetes sets its own
	"github.com/berthd/berth/apiserver/storage"
	"github.com/berthd/berth/apiserver/store"
)

// Run runs the server until the context ends, or until a part of it fails for good. It returns
// after every part has stopped.
func Run(ctx context.Context, o *Options) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := o.check(ctx)
	if err != nil {
		return err
	}
	unlock, err := store.Lock(o.DataDir)
	if err != nil {
		return err
	}
	defer unlock()
	keys, err := o.prepare(ctx, c)
	if err != nil {
		return err
	}
	var parts sync.WaitGroup
	defer func() {
		cancel(nil)
		parts.Wait()
	}()
	parts.Go(func() {
		keys.Maintain(ctx, func(err error) { klog.ErrorS(err, "Certificates could not be renewed") })
	})
	var own *store.Store
	if !c.external {
		s, err := store.Start(ctx, o.DataDir)
		if err != nil && ctx.Err() != nil {
			return failure(ctx) // somebody asked it to stop
		}
		if err != nil {
			return err
		}
		defer s.Close()
		parts.Go(func() { watchStore(ctx, s, cancel) })
		own = s
	}
	if ctx.Err() != nil {
		return failure(ctx)
	}
	return errors.Join(serve(ctx, o, ready{c.server, keys, own}, cancel), failure(ctx))
}

// prepare makes in the data directory what the server needs before its store starts.
func (o *Options) prepare(ctx context.Context, c *checked) (*pki.Keys, error) {
	if err := o.checkAddress(ctx); err != nil {
		return nil, err
	}
	if !c.external {
		if err := prepareStore(o.DataDir); err != nil {
			return nil, err
		}
	}
	keys, err := pki.Ensure(c.keys, time.Now())
	if err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil { // by the keys, too
		return nil, err
	}
	return keys, c.signTokens(o.Server.ServiceAccountSigningKeyFile)
}

// prepareStore makes the folder of a new store, and logs that it is new.
func prepareStore(dataDir string) error {
	empty, err := store.Prepare(dataDir)
	if err != nil {
		return err
	}
	_, err = os.Stat(pki.Paths(dataDir).ServiceAccounts)
	switch {
	case empty:
		klog.InfoS("A new store begins with an empty API. If there was another, stop the server and restore a snapshot "+
			"of it: berth-apiserver snapshot restore FILE", "dataDir", dataDir)
	case errors.Is(err, fs.ErrNotExist):
		klog.InfoS("New keys are made for a store that has content: kubeconfigs, nodes and tokens that the old keys signed "+
			"are not valid any more. To keep them, stop the server and put the old folder pki back", "dataDir", dataDir)
	}
	return nil
}

// removeForgotten removes workloads of namespaces that are gone. Without it the server serves all the
// same.
func removeForgotten(ctx context.Context, s *store.Store, prefix string) {
	client := s.Client()
	defer func() { _ = client.Close() }() // says only that its context has ended
	switch n, err := storage.RemoveForgotten(ctx, client.Client, prefix); {
	case err != nil:
		klog.ErrorS(err, "Workloads of namespaces that are gone may come back in new ones of the same name")
	case n > 0:
		klog.InfoS("Workloads of namespaces are removed that were deleted while --workloads was off", "objects", n)
	}
}

// failure returns what stopped the server, nil if somebody asked for it.
func failure(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// watchStore stops the server if the store fails.
func watchStore(ctx context.Context, s *store.Store, stop context.CancelCauseFunc) {
	if err := s.Wait(ctx); err != nil {
		stop(fmt.Errorf("the store failed: %w", err))
	}
}

// withoutConnections has the servers of all kinds call the store's functions.
func withoutConnections(config *app.Config, direct *storage.Direct, etcd genericoptions.EtcdOptions) error {
	ofDefinitions := etcd
	ofDefinitions.WatchCacheSizes = nil // as upstream has it for the kinds that people define
	for _, kinds := range []struct {
		getter *generic.RESTOptionsGetter
		etcd   genericoptions.EtcdOptions
	}{
		{&config.KubeAPIs.ControlPlane.Generic.RESTOptionsGetter, etcd},
		{&config.Aggregator.GenericConfig.RESTOptionsGetter, etcd},
		{&config.ApiExtensions.GenericConfig.RESTOptionsGetter, etcd},
		{&config.ApiExtensions.ExtraConfig.CRDRESTOptionsGetter, ofDefinitions},
	} {
		getter, err := direct.Getter(*kinds.getter, kinds.etcd)
		if err != nil {
			return err
		}
		*kinds.getter = getter
	}
	return nil
}

// controllersOf returns what starts the controllers, and what gives memory back, as goroutines of a
// group. stop is called if the controllers fail.
func controllersOf(
	o *Options, factory informers.SharedInformerFactory, keys *pki.Keys, group *sync.WaitGroup,
	stop context.CancelCauseFunc,
) genericapiserver.PostStartHookFunc {
	return func(h genericapiserver.PostStartHookContext) error {
		group.Go(func() {
			if err := control.Run(h, control.Options{
				Loopback: rest.CopyConfig(h.LoopbackClientConfig), Informers: factory, CA: keys.CA, CAKey: keys.CAKey,
				Controllers: o.Controllers, Workloads: o.Workloads, Scheduler: o.Scheduler, Apps: o.serves("apps/v1"),
			}); err != nil {
				stop(fmt.Errorf("the controllers failed: %w", err))
			}
		})
		group.Go(func() {
			if err := giveBack(h, rest.CopyConfig(h.LoopbackClientConfig)); err != nil {
				klog.ErrorS(err, "Memory could not be given back")
			}
		})
		return nil
	}
}

// fit changes the parts of the configuration for which upstream has no setting.
func fit(config *app.Config, o *Options) {
	if o.restrictsAnonymous() {
		allowAnonymous(config)
	}
	rememberCertificates(config, o)
	answerComponents(config, o)
	if o.Server.EndpointReconcilerType == string(reconcilers.NoneEndpointReconcilerType) {
		leaveEndpointsOut(config)
	}
}

// ready is what a server needs before it can serve. own is the store in this process, if there is
// one.
type ready struct {
	settings options.CompletedOptions
	keys     *pki.Keys
	own      *store.Store
}

// newConfig returns upstream's configuration of these settings.
func newConfig(with ready) (*app.Config, error) {
	config, err := app.NewConfig(with.settings)
	switch {
	case err == nil:
		return config, nil
	case with.own == nil && strings.Contains(err.Error(), context.DeadlineExceeded.Error()): // upstream wraps not all
		err = fmt.Errorf("%w: no etcd answers at %s (--etcd-servers)", err,
			strings.Join(with.settings.Etcd.StorageConfig.Transport.ServerList, ","))
	}
	return nil, fmt.Errorf("configure the API server: %w", err)
}

// keepHere has the server keep its content in the store in this process. The caller calls end after
// the server has ended.
func keepHere(ctx context.Context, config *app.Config, o *Options, own *store.Store) (end func(), err error) {
	refuseWithoutRoom(config, own.Room)
	if o.Workloads {
		removeForgotten(ctx, own, o.Server.Etcd.StorageConfig.Prefix)
	}
	direct := storage.New(own.Client, o.compaction)
	return direct.Close, withoutConnections(config, direct, *o.Server.Etcd)
}

// serve runs the API server, and the controllers as soon as the API answers.
func serve(ctx context.Context, o *Options, with ready, stop context.CancelCauseFunc) error {
	config, err := newConfig(with)
	if err != nil || ctx.Err() != nil {
		return err // none: somebody asked it to stop, or Run knows the failure
	}
	fit(config, o)
	var documents *common.OpenAPIV3Config
	if !o.OpenAPIV2 {
		withoutOpenAPIV2(config)
		documents = withoutDocuments(config)
	}
	if with.own != nil {
		end, err := keepHere(ctx, config, o, with.own)
		defer end()
		if err != nil {
			return err
		}
	}
	factory := config.KubeAPIs.ControlPlane.VersionedInformers
	chain, err := config.Complete()
	if err != nil {
		return fmt.Errorf("configure the API server: %w", err)
	}
	first := takePolicies(chain)
	server, err := newChain(chain, o.CRDs)
	if err != nil {
		return fmt.Errorf("make the API server: %w", err)
	}
	// A server that runs does this by itself. One that is not run must not read a store that ends.
	defer server.GenericAPIServer.Destroy()
	if ctx.Err() != nil {
		return nil
	}
	if err := addPolicies(server.GenericAPIServer, chain, first, stop); err != nil {
		return err
	}
	if documents != nil {
		if err := serveDocuments(server.GenericAPIServer, documents); err != nil {
			return err
		}
	}
	var controllers sync.WaitGroup
	defer controllers.Wait()
	run := controllersOf(o, factory, with.keys, &controllers, stop)
	if err := server.GenericAPIServer.AddPostStartHook("berth-controllers", run); err != nil {
		return fmt.Errorf("add the controllers: %w", err)
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return fmt.Errorf("prepare the API server: %w", err)
	}
	if documents != nil {
		forgetDefinitions(documents, o.CRDs)
	}
	serving, end, err := afterStart(ctx, server.GenericAPIServer.LoopbackClientConfig, fatalHooks(o.CRDs))
	if err != nil {
		return err
	}
	defer end()
	return prepared.Run(serving)
}
