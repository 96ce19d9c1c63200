package kube

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"
)

// dialTimeout and keepAlive are the values of client-go for a connection to the API server.
// HTTP/2's pings find connections that went silent.
const (
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// Config says how to reach the API server.
type Config struct {
	// Kubeconfig is the path of the file with the API server's address and the agent's identity.
	// Files that the kubeconfig names (certificates, tokens) are read again when they change.
	Kubeconfig string
	// UserAgent is the agent's name in requests.
	UserAgent string
	// QPS limits the requests per second, Burst the requests at the same moment (kubeAPIQPS,
	// kubeAPIBurst). A QPS below zero is no limit.
	QPS   float32
	Burst int
	// ContentType is the encoding of bodies (contentType). Answers may have this encoding or JSON.
	// Empty means JSON.
	ContentType string
	// Observe, if set, gets every request's method, host and status code. The code is "<error>" if
	// there was no answer.
	Observe func(method, host, code string)
	// Wrap, if set, wraps the transport that sends requests.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Conn is a connection to an API server. It dials at its first use, and again whenever the
// connection is lost.
type Conn struct {
	config rest.Config
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
	params runtime.ParameterCodec
	client *http.Client
	dialer *connrotation.Dialer
	limit  flowcontrol.RateLimiter

	mu     *sync.Mutex
	groups map[schema.GroupVersion]rest.Interface
}

// Dial makes a connection from a kubeconfig. It sends nothing yet. Its errors are about the
// kubeconfig and the files that the kubeconfig names.
func Dial(cfg Config) (*Conn, error) {
	config, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return New(config, cfg)
}

// New is [Dial] with a config that does not come from a file.
func New(config *rest.Config, cfg Config) (*Conn, error) {
	c := &Conn{
		config: *rest.CopyConfig(config),
		scheme: Scheme(),
		mu:     &sync.Mutex{},
		groups: map[schema.GroupVersion]rest.Interface{},
	}
	c.codecs = serializer.NewCodecFactory(c.scheme)
	c.params = runtime.NewParameterCodec(c.scheme)
	dial := config.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	c.dialer = connrotation.NewDialer(dial)
	c.config.Dial = c.dialer.DialContext
	c.config.UserAgent = cfg.UserAgent
	c.config.ContentType = cfg.ContentType
	if cfg.ContentType != "" && cfg.ContentType != runtime.ContentTypeJSON {
		c.config.AcceptContentTypes = cfg.ContentType + "," + runtime.ContentTypeJSON
	}
	c.config.QPS, c.config.Burst = cfg.QPS, cfg.Burst
	if cfg.QPS > 0 {
		c.limit = flowcontrol.NewTokenBucketRateLimiter(cfg.QPS, max(cfg.Burst, 1))
	}
	if cfg.Observe != nil {
		c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observer{next, cfg.Observe} })
	}
	c.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return discreet{next} })
	if cfg.Wrap != nil {
		c.config.Wrap(cfg.Wrap)
	}
	var err error
	if c.client, err = rest.HTTPClientFor(&c.config); err != nil {
		return nil, fmt.Errorf("preparing the connection to the API server %s: %w", config.Host, err)
	}
	return c, nil
}

// Scheme returns the types that the agent reads and writes.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, v1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{
		v1.AddToScheme, coordinationv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme,
		certificatesv1.AddToScheme, certificatesv1beta1.AddToScheme, nodev1.AddToScheme, resourcev1.AddToScheme,
		storagev1.AddToScheme,
	} {
		if err := add(s); err != nil {
			// every call registers the same types
			panic(fmt.Sprintf("types of the API registered twice: %v", err))
		}
	}
	return s
}

// Unbounded returns the same connection without a limit of requests. Heartbeats use it, because
// they must not wait behind other requests.
func (c *Conn) Unbounded() *Conn {
	out := *c
	out.limit, out.mu, out.groups = nil, &sync.Mutex{}, map[schema.GroupVersion]rest.Interface{}
	return &out
}

// Host returns the API server's URL.
func (c *Conn) Host() string { return c.config.Host }

// RESTConfig returns a copy of the connection's config, for libraries that make their own
// connections.
func (c *Conn) RESTConfig() *rest.Config { return rest.CopyConfig(&c.config) }

// HTTPClient returns the client that authenticates its requests as the agent does.
func (c *Conn) HTTPClient() *http.Client { return c.client }

// Group returns the client of one API group, for requests that no [Client] makes. The group must be
// in the connection's scheme: core, coordination, authentication, authorization, certificates,
// node, resource and storage, each v1, and v1beta1 of certificates.
func (c *Conn) Group(gv schema.GroupVersion) (rest.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if g, ok := c.groups[gv]; ok {
		return g, nil
	}
	config := rest.CopyConfig(&c.config)
	config.GroupVersion, config.APIPath = &gv, "/apis"
	if gv.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = c.codecs.WithoutConversion()
	config.RateLimiter = c.limit
	if c.limit == nil {
		config.QPS = -1
	}
	g, err := rest.RESTClientForConfigAndClient(config, c.client)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API group %s: %w", gv, err)
	}
	c.groups[gv] = g
	return g, nil
}

// CloseConnections ends every connection, so that the next requests use the current certificates.
func (c *Conn) CloseConnections() {
	c.client.CloseIdleConnections()
	c.dialer.CloseAll()
}

// observer reports requests.
type observer struct {
	next    http.RoundTripper
	observe func(method, host, code string)
}

// RoundTrip sends the request and reports it.
func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = fmt.Sprint(resp.StatusCode)
	}
	o.observe(r.Method, r.URL.Host, code)
	return resp, err
}

// WrappedRoundTripper returns the inner transport; client-go's helpers look for this method.
func (o observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// bounded adds [RequestTimeout] to a context that has no deadline.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, RequestTimeout)
}
