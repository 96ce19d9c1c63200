package control

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
)

var (
	// managerUser is whom kube-controller-manager is to the API in what its controllers share.
	managerUser = &user.DefaultInfo{Name: user.KubeControllerManager, Groups: []string{user.AllAuthenticated}}
	// schedulerUser is whom kube-scheduler is to the API.
	schedulerUser = &user.DefaultInfo{Name: user.KubeScheduler, Groups: []string{user.AllAuthenticated}}
)

// accountOf returns the ServiceAccount that Kubernetes' bootstrap policy has for the controller
// with a client of that name. It need not exist as an object.
func accountOf(client string) user.Info {
	account := serviceaccount.UserInfo(metav1.NamespaceSystem, client, "")
	return &user.DefaultInfo{
		Name: account.GetName(), Groups: append(slices.Clone(account.GetGroups()), user.AllAuthenticated),
	}
}

// actingAs returns the config of a client that uses the loopback connection with the rights of u
// alone. Only the server limits its requests, by the priority that u has: a client's own limit is
// there to protect a server that others use, too.
func actingAs(loopback *rest.Config, u user.Info) *rest.Config {
	config := rest.CopyConfig(loopback)
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{UserName: u.GetName(), Groups: u.GetGroups()}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return refusals{next: next, user: u.GetName(), log: klog.Background()}
	})
	return config
}

// controllerClients makes the clients of controllers. Each controller acts as its own
// ServiceAccount, so that admission and the audit log see who asks, and what a user has a
// controller do is not done with all rights.
type controllerClients struct {
	loopback *rest.Config
	// building ends when all controllers are made, or when they are not wanted any more.
	building context.Context //nolint:containedctx // upstream gives its builders of clients none
}

var _ clientbuilder.ControllerClientBuilder = controllerClients{}

// of returns what makes the clients of that name.
func (c controllerClients) of(name string) clientbuilder.SimpleControllerClientBuilder {
	return clientbuilder.SimpleControllerClientBuilder{ClientConfig: actingAs(c.loopback, accountOf(name))}
}

// Config returns the config of a controller's clients.
func (c controllerClients) Config(name string) (*rest.Config, error) { return c.of(name).Config(name) }

// ConfigOrDie does the same, and ends the process if that fails.
func (c controllerClients) ConfigOrDie(name string) *rest.Config { return c.of(name).ConfigOrDie(name) }

// Client returns a controller's client.
func (c controllerClients) Client(name string) (kubernetes.Interface, error) {
	client, err := c.of(name).Client(name)
	if err != nil {
		return nil, err
	}
	asks, err := c.DiscoveryClient(name)
	if err != nil {
		return nil, err
	}
	return discovering{client, answered{asks, c.building}}, nil
}

// ClientOrDie does the same, and ends the process if that fails.
func (c controllerClients) ClientOrDie(name string) kubernetes.Interface {
	client, err := c.Client(name)
	utilruntime.Must(err)
	return client
}

// DiscoveryClient returns what asks for a controller which kinds the server has.
func (c controllerClients) DiscoveryClient(name string) (discovery.DiscoveryInterface, error) {
	config, err := c.Config(name)
	if err != nil {
		return nil, err
	}
	return newKinds(config)
}

// DiscoveryClientOrDie does the same, and ends the process if that fails.
func (c controllerClients) DiscoveryClientOrDie(name string) discovery.DiscoveryInterface {
	client, err := c.DiscoveryClient(name)
	utilruntime.Must(err)
	return client
}

// refusals logs the requests that user has no right to make: not every controller tells of them,
// and somebody changed a role then. What admission refuses is not logged: a controller meets that
// in normal operation, and has an event for it.
type refusals struct {
	next http.RoundTripper
	user string
	log  klog.Logger
}

// refusalLimit bounds in bytes how far an answer is searched for its reason, which is in front.
const refusalLimit = 64 << 10

// RoundTrip makes the request.
func (r refusals) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := r.next.RoundTrip(request)
	if err != nil || answer.StatusCode != http.StatusForbidden {
		return answer, err //nolint:wrapcheck // a client knows the errors of its transport
	}
	// An error comes again when the rest is read.
	text, _ := io.ReadAll(io.LimitReader(answer.Body, refusalLimit))
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(text), answer.Body), answer.Body}
	if bytes.Contains(text, []byte(r.user)) && bytes.Contains(text, []byte(" cannot ")) {
		r.log.Error(nil, "A part of the control plane lacks a right", "user", r.user, "method", request.Method,
			"path", request.URL.Path)
	}
	return answer, nil
}
