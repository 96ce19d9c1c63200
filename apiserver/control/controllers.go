package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/controller-manager/pkg/informerfactory"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// always are the controllers without which an API does not do what clients expect of it.
var always = []string{
	names.NamespaceController, names.ServiceAccountController, names.RootCACertificatePublisherController,
	names.ClusterRoleAggregationController, names.GarbageCollectorController,
	names.PodGarbageCollectorController, names.NodeLifecycleController, names.TaintEvictionController,
	names.EndpointsController, names.EndpointSliceController, names.EndpointSliceMirroringController,
	names.ResourceQuotaController, names.PersistentVolumeBinderController,
	names.PersistentVolumeClaimProtectionController, names.PersistentVolumeProtectionController,
	names.VolumeAttributesClassProtectionController, names.ResourceClaimController,
	names.EphemeralVolumeController, names.CertificateSigningRequestApprovingController,
	names.CertificateSigningRequestSigningController, names.CertificateSigningRequestCleanerController,
	names.TokenCleanerController, names.ServiceCIDRController, names.ReplicationControllerController,
	names.DisruptionController,
}

// workloads are the controllers that make pods, and those that only matter beside them.
var workloads = []string{
	names.DeploymentController, names.ReplicaSetController, names.DaemonSetController,
	names.StatefulSetController, names.JobController, names.CronJobController,
	names.TTLAfterFinishedController, names.HorizontalPodAutoscalerController,
}

// WorkloadGroups are the API versions, in the form of kube-apiserver's --runtime-config, that the
// server serves only with workloads.
var WorkloadGroups = []string{"apps/v1", "batch/v1", "autoscaling/v1", "autoscaling/v2"}

// resync is how often controllers look at all objects again, as in kube-controller-manager.
const resync = 12 * time.Hour

// buildControllers makes the controllers that opts asks for. They do nothing before run.
func buildControllers(ctx context.Context, opts Options) (*controllerSet, error) {
	building, built := context.WithCancelCause(ctx)
	defer built(errBuilt)
	s, err := newControllerSet(ctx, opts, controllerClients{loopback: opts.Loopback, building: building})
	if err != nil {
		return nil, err
	}
	wanted := opts.wanted()
	if !opts.Apps {
		withoutApps(s.context.InformerFactory)
	}
	descriptors := manager.NewControllerDescriptors()
	for _, name := range wanted {
		descriptor, ok := descriptors[name]
		if !ok {
			return nil, fmt.Errorf("there is no controller %q in this release of Kubernetes", name)
		}
		c, err := descriptor.BuildController(ctx, s.context)
		if err != nil {
			return nil, fmt.Errorf("make the %s: %w", name, err)
		}
		if c != nil { // one whose feature gate is off
			s.controllers = append(s.controllers, c)
		}
	}
	return s, nil
}

// wanted returns the controllers that opts asks for.
func (opts Options) wanted() []string {
	switch {
	case !opts.Controllers:
		return nil
	case opts.Workloads:
		return slices.Concat(always, workloads)
	}
	return always
}

// controllerSet has the controllers and what they share.
type controllerSet struct {
	context     manager.ControllerContext
	controllers []manager.Controller
	// gate keeps what the API server's informers see from controllers that are not made yet.
	gate chan struct{}
}

// newControllerSet makes what the controllers share. That acts as kube-controller-manager. own makes
// each controller's own clients.
func newControllerSet(ctx context.Context, opts Options, own controllerClients) (*controllerSet, error) {
	config, err := options.NewDefaultComponentConfig()
	if err != nil {
		return nil, fmt.Errorf("make the settings of controllers: %w", err)
	}
	config.SAController.RootCAFile = opts.CA
	config.CSRSigningController.ClusterSigningCertFile = opts.CA
	config.CSRSigningController.ClusterSigningKeyFile = opts.CAKey
	clients := clientbuilder.SimpleControllerClientBuilder{ClientConfig: actingAs(opts.Loopback, managerUser)}
	metadataConfig, err := clients.Config("metadata-informers")
	if err != nil {
		return nil, fmt.Errorf("make the client of controllers: %w", err)
	}
	metadataClient, err := metadata.NewForConfig(metadataConfig)
	if err != nil {
		return nil, fmt.Errorf("make the metadata client of controllers: %w", err)
	}
	discovery, err := clients.DiscoveryClient("controller-discovery")
	if err != nil {
		return nil, fmt.Errorf("make the discovery client of controllers: %w", err)
	}
	client, err := clients.Client("shared-informers")
	if err != nil {
		return nil, fmt.Errorf("make the informers' client: %w", err)
	}
	gate := make(chan struct{})
	shared, err := gatedInformers(ctx, client, opts.Informers, gate)
	if err != nil {
		return nil, err
	}
	s := &controllerSet{gate: gate, context: manager.ControllerContext{
		ClientBuilder:   own,
		InformerFactory: shared,
		ObjectOrMetadataInformerFactory: informerfactory.NewInformerFactory(shared,
			metadatainformer.NewSharedInformerFactoryWithOptions(metadataClient, resync,
				metadatainformer.WithTransform(withoutManagedFields))),
		ComponentConfig:          config,
		RESTMapper:               restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		InformersStarted:         make(chan struct{}),
		ResyncPeriod:             func() time.Duration { return resync },
		ControllerManagerMetrics: controllers.NewControllerManagerMetrics("berth-apiserver"),
	}}
	ignored := map[schema.GroupResource]struct{}{}
	for r := range garbagecollector.DefaultIgnoredResources() {
		ignored[r] = struct{}{}
	}
	s.context.GraphBuilder = garbagecollector.NewDependencyGraphBuilder(ctx, metadataClient, s.context.RESTMapper,
		ignored, s.context.ObjectOrMetadataInformerFactory, s.context.InformersStarted)
	return s, nil
}

// start starts the informers that the controllers asked for, and lets the API server's through.
// Whoever makes a set starts it: until then the API server keeps what the handlers have not seen.
func (s *controllerSet) start(ctx context.Context) {
	close(s.gate)
	s.context.InformerFactory.Start(ctx.Done())
	s.context.ObjectOrMetadataInformerFactory.Start(ctx.Done())
	close(s.context.InformersStarted)
}

// withoutManagedFields drops what no controller reads and what may be half of an object.
func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}
