package cluster

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
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
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

// dialTimeout and keepAlive are those of a connection to the API server, the same as client-go's own. Connections that went silent are found by HTTP/2's pings.
const (
	dialTimeout = 30 * time.Second
	keepAlive   = 30 * time.Second
)

// Config says how to reach the API server.
type Config struct {
	// Kubeconfig is the path of the file that says where it is and who we are. Files that it names (certificates, tokens) are read again when they change.
	Kubeconfig string
	// UserAgent is what we call ourselves.
	UserAgent string
	// QPS and Burst bound how many requests are sent per second, and at once; a QPS below zero is no bound (kubeAPIQPS, kubeAPIBurst).
	QPS   float32
	Burst int
	// ContentType is what bodies are encoded as (contentType); answers may be in it or in JSON. Empty means JSON.
	ContentType string
	// Observe, where it is set, is told of every request's method, host and status code; the code is "<error>" where there was no answer.
	Observe func(method, host, code string)
	// Wrap, where it is set, is put around what sends requests.
	Wrap func(http.RoundTripper) http.RoundTripper
}

// Conn is a connection to an API server. It dials when it is first used, and again whenever it has to.
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

// Dial makes a connection from a kubeconfig; it sends nothing yet. An error is about the kubeconfig, or the files that it names.
func Dial(cfg Config) (*Conn, error) {
	config, err := clientcmd.BuildConfigFromFlags("", cfg.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig %s: %w", cfg.Kubeconfig, err)
	}
	return New(config, cfg)
}

// New is Dial for a config that was made from something else than a file.
func New(config *rest.Config, cfg Config) (*Conn, error) {
	c := &Conn{config: *rest.CopyConfig(config), scheme: Scheme(), mu: &sync.Mutex{}, groups: map[schema.GroupVersion]rest.Interface{}}
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
		v1.AddToScheme, coordinationv1.AddToScheme, authenticationv1.AddToScheme, authorizationv1.AddToScheme, certificatesv1.AddToScheme, nodev1.AddToScheme,
		storagev1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("types of the API registered twice: %v", err)) // they are the same at all times
		}
	}
	return s
}

// Unbounded returns the same connection without a bound on requests, for what must not wait behind others: heartbeats.
func (c *Conn) Unbounded() *Conn {
	out := *c
	out.limit, out.mu, out.groups = nil, &sync.Mutex{}, map[schema.GroupVersion]rest.Interface{}
	return &out
}

// Host returns the API server's URL.
func (c *Conn) Host() string { return c.config.Host }

// RESTConfig returns a copy of the connection's config, for libraries that make connections of their own.
func (c *Conn) RESTConfig() *rest.Config { return rest.CopyConfig(&c.config) }

// HTTPClient returns the client whose requests are authenticated as the agent's are.
func (c *Conn) HTTPClient() *http.Client { return c.client }

// Group returns the client of one API group, for requests that no [Client] makes. Its types must be among those of the connection's scheme: core, coordination,
// authentication, authorization, node and storage, each v1.
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

// CloseConnections ends every connection, so that the next requests are made with the certificates that there are now.
func (c *Conn) CloseConnections() {
	c.client.CloseIdleConnections()
	c.dialer.CloseAll()
}

// observer tells of requests.
type observer struct {
	next http.RoundTripper
	tell func(method, host, code string)
}

// RoundTrip sends the request and tells of it.
func (o observer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(r)
	code := "<error>"
	if err == nil {
		code = fmt.Sprint(resp.StatusCode)
	}
	o.tell(r.Method, r.URL.Host, code)
	return resp, err
}

// WrappedRoundTripper returns the transport beneath, as client-go's helpers look for it.
func (o observer) WrappedRoundTripper() http.RoundTripper { return o.next }

// bounded gives a request the time that one has, unless its context says so already.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, RequestTimeout)
}
