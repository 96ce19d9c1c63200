package apiserver

import (
	"errors"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berthd/berth/apiserver/store"
)

// reasonNoRoom is the reason of the Status that a refused write gets.
const reasonNoRoom metav1.StatusReason = "InsufficientStorage"

var (
	// writing are the verbs of requests that write to the store.
	writing = sets.New("create", "update", "patch", "delete", "deletecollection")
	// answered are the groups, and passedOn the subresources, whose requests write nothing: they are
	// questions, or go on to a node or a Service.
	answered = sets.New("authentication.k8s.io", "authorization.k8s.io")
	passedOn = sets.New("token", "exec", "attach", "portforward", "proxy")
)

// refuseWithoutRoom has the server answer 507 to writes while its disk is full or the store too
// large. It asks the store at each of them, and so writes go on as soon as there is room.
func refuseWithoutRoom(config *app.Config, room func(store.Write) error) {
	generic := config.Aggregator.GenericConfig
	build := generic.BuildHandlerChainFunc
	generic.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return build(withRoom(api, room), c)
	}
}

// withRoom is the API for requests whose user and rights are known.
func withRoom(api http.Handler, room func(store.Write) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !writes(info) || isDry(info, r) {
			api.ServeHTTP(w, r)
			return
		}
		err := room(does(info))
		if err == nil {
			api.ServeHTTP(w, r)
			return
		}
		if !errors.Is(err, store.ErrNoRoom) && !errors.Is(err, store.ErrLimit) {
			klog.ErrorS(err, "A write goes on without a look at the disk")
			api.ServeHTTP(w, r)
			return
		}
		refused := &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInsufficientStorage, Reason: reasonNoRoom, Message: err.Error(),
		}}
		group := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
		responsewriters.ErrorNegotiated(refused, legacyscheme.Codecs, group, w, r)
	})
}

// writes says whether a request writes to the store.
func writes(info *request.RequestInfo) bool {
	return info.IsResourceRequest && writing.Has(info.Verb) && !answered.Has(info.APIGroup) &&
		!passedOn.Has(info.Subresource)
}

// isDry says whether a request only tries what a write would do. The body of a deletion can say that,
// too, and decides if there is one: a deletion is taken for one.
func isDry(info *request.RequestInfo, r *http.Request) bool {
	return does(info) != store.Deletion && slices.Equal(r.URL.Query()["dryRun"], []string{metav1.DryRunAll})
}

// does says what a write does to the store. An eviction is created, but it deletes a pod.
func does(info *request.RequestInfo) store.Write {
	switch {
	case info.Verb == "delete", info.Verb == "deletecollection", info.Subresource == "eviction":
		return store.Deletion
	case info.Verb == "create":
		return store.Creation
	}
	return store.Change
}
