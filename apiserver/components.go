package apiserver

import (
	"crypto/tls"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/cluster/ports"
	"k8s.io/kubernetes/pkg/probe"
	"k8s.io/kubernetes/pkg/registry/core/componentstatus"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// answerComponents has the server answer for the controllers and the scheduler of this process when
// it is asked for ComponentStatuses. Upstream asks the ports of a kube-controller-manager and of a
// kube-scheduler, and has no setting for others.
func answerComponents(config *app.Config, o *Options) {
	stores := config.KubeAPIs.ControlPlane.StorageFactory.Configs()
	components := componentstatus.NewStorage(func() map[string]componentstatus.Server {
		all := map[string]componentstatus.Server{
			"controller-manager": component(o.Controllers, ports.KubeControllerManagerPort),
			"scheduler":          component(o.Scheduler, schedulerconfig.DefaultKubeSchedulerPort),
		}
		for i, store := range stores {
			all[fmt.Sprintf("etcd-%d", i)] = &componentstatus.EtcdServer{Config: store}
		}
		return all
	})
	generic := config.Aggregator.GenericConfig
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return build(withComponents(api, components), c)
	}
}

// component is a part of this process, or a program of this machine that listens at a port.
func component(here bool, port int) componentstatus.Server {
	if here {
		return inProcess{}
	}
	return &componentstatus.HttpServer{
		// #nosec: as upstream does; nothing but the health is read
		EnableHTTPS: true, TLSConfig: &tls.Config{InsecureSkipVerify: true}, Addr: "127.0.0.1", Port: port,
		Path: "/healthz",
	}
}

// inProcess is a part of this process, which ends when one of its parts does.
type inProcess struct{}

// DoServerCheck is [componentstatus.Server]'s.
func (inProcess) DoServerCheck() (probe.Result, string, error) { return probe.Success, "ok", nil }

// withComponents is the API for requests whose user and rights are known.
func withComponents(api http.Handler, components *componentstatus.REST) http.Handler {
	version := schema.GroupVersion{Version: "v1"}
	scope := &handlers.RequestScope{
		Namer:      handlers.ContextBasedNaming{Namer: runtime.Namer(meta.NewAccessor()), ClusterScoped: true},
		Serializer: legacyscheme.Codecs, ParameterCodec: legacyscheme.ParameterCodec,
		Creater:   legacyscheme.Scheme, //nolint:misspell // upstream's name
		Convertor: legacyscheme.Scheme, Defaulter: legacyscheme.Scheme,
		Typer: legacyscheme.Scheme, UnsafeConvertor: runtime.UnsafeObjectConvertor(legacyscheme.Scheme),
		TableConvertor: components, Resource: version.WithResource("componentstatuses"),
		Kind: version.WithKind("ComponentStatus"), MetaGroupVersion: metav1.SchemeGroupVersion,
		HubGroupVersion: schema.GroupVersion{Version: runtime.APIVersionInternal},
	}
	answers := map[string]http.HandlerFunc{
		"get":  handlers.GetResource(components, scope),
		"list": handlers.ListResource(components, nil, scope, false, 0), // 0: nobody can watch
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if ok && info.IsResourceRequest && info.APIGroup == "" && info.Resource == scope.Resource.Resource &&
			info.Subresource == "" && info.Namespace == "" && answers[info.Verb] != nil {
			warning.AddWarning(r.Context(), "", "v1 ComponentStatus is deprecated in v1.19+") // as upstream warns
			answers[info.Verb](w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}
