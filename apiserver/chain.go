package apiserver

import (
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	controlplane "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// ordered are the groups that only a cluster's API server has, in the order in which clients get to
// see them. Upstream gives the order of the others.
var ordered = []string{
	"apps", "autoscaling", "batch", "networking.k8s.io", "policy", "storage.k8s.io", "scheduling.k8s.io", "node.k8s.io",
	"resource.k8s.io",
}

const (
	// highest and distance are the priorities of those groups: below those that upstream gives to
	// core, events, authentication and authorization, and above all others of upstream's.
	highest, distance = 17290, 10
	// versions is the priority of the first version of a group, and of each next one is 1 lower.
	versions = 30
)

// identity is the hook that keeps a Lease which says that this server lives. Only other API servers
// read it. Upstream tries for ever to make that Lease, and the end of the server waits for it: a
// server whose store takes no writes would not end.
const identity = "start-kube-apiserver-identity-lease-controller"

// newChain makes the API server and the aggregator before it. With crds there is also a server of
// CustomResourceDefinitions behind it; without, nothing of it runs, which saves memory, and a
// request for a kind that nobody knows ends with 404 at once.
func newChain(config app.CompletedConfig, crds bool) (*aggregator.APIAggregator, error) {
	config.KubeAPIs.ControlPlane.Generic.DisabledPostStartHooks.Insert(identity)
	if crds {
		return app.CreateServerChain(config)
	}
	end := notfoundhandler.New(config.KubeAPIs.ControlPlane.Generic.Serializer,
		genericapifilters.NoMuxAndDiscoveryIncompleteKey)
	own, err := config.KubeAPIs.New(genericapiserver.NewEmptyDelegateWithCustomHandler(end))
	if err != nil {
		return nil, fmt.Errorf("make the server of the API's own kinds: %w", err)
	}
	// Nobody starts these informers.
	none := apiextensions.NewSharedInformerFactory(nil, 0).Apiextensions().V1().CustomResourceDefinitions()
	return controlplane.CreateAggregatorServer(config.Aggregator, own.ControlPlane.GenericAPIServer, none, false,
		priorities())
}

// priorities returns the order in which clients get to see the groups and their versions.
func priorities() map[schema.GroupVersion]controlplane.APIServicePriority {
	all := controlplane.DefaultGenericAPIServicePriorities()
	for i, group := range ordered {
		for j, version := range legacyscheme.Scheme.PrioritizedVersionsForGroup(group) {
			all[version] = controlplane.APIServicePriority{Group: int32(highest - i*distance), Version: int32(versions - j)}
		}
	}
	return all
}
