package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berthd/berth/agent/cluster/certs"
	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/agent/telemetry/tracing"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/lifecycle"
	"github.com/berthd/berth/internal/retry"
)

// Rotators keep the node's certificates that the cluster signs. A rotator is nil if its certificate
// is not wanted.
type Rotators struct {
	Client, Serving *certs.Rotator
}

// loops returns the rotators' loops.
func (r Rotators) loops() []lifecycle.Loop {
	var list []lifecycle.Loop
	if r.Client != nil {
		list = append(list, lifecycle.Loop{Name: "client certificate", Run: r.Client.Run})
	}
	if r.Serving != nil {
		list = append(list, lifecycle.Loop{Name: "serving certificate", Run: r.Serving.Run})
	}
	return list
}

// Connection is the connection to a cluster's API server, with the rotators of the certificates
// that the cluster signs.
type Connection struct {
	Conn     *kube.Conn
	Rotators Rotators
}

// connector makes the connection to the cluster's API server, and the rotators of its certificates.
type connector struct {
	cfg  *configs.Config
	node *node.Node
	// settings are the connection's, without a kubeconfig.
	settings kube.Config
	metrics  *metrics.Set
	log      *slog.Logger
	conn     *kube.Conn
	// open is closed once requests can be made.
	open chan struct{}
}

// Connect prepares the connection to the cluster's API server; nil for a node without a cluster.
// Connect succeeds even if the API server does not answer. If the node has no client certificate
// yet, requests wait for one.
func Connect(
	cfg *configs.Config, n *node.Node, version string, set *metrics.Set, traces *tracing.Tracing, log *slog.Logger,
) (*Connection, error) {
	if cfg.Kubeconfig == "" {
		return nil, nil
	}
	k := &cfg.Kubelet
	c := &connector{cfg: cfg, node: n, metrics: set, log: log, open: make(chan struct{}), settings: kube.Config{
		UserAgent:   fmt.Sprintf("berth/%s (%s/%s)", version, runtime.GOOS, runtime.GOARCH),
		QPS:         qps(k.KubeAPIQPS),
		Burst:       int(k.KubeAPIBurst),
		ContentType: k.ContentType,
		Observe:     set.APIRequest,
		Wrap:        traces.Transport,
	}}
	var rotators Rotators
	config, err := c.client(&rotators)
	if err != nil {
		return nil, err
	}
	if c.conn, err = kube.New(config, c.settings); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	if k.ServerTLSBootstrap && k.TLSCertFile == "" && cfg.ServesAPI() {
		if rotators.Serving, err = c.serving(); err != nil {
			return nil, err
		}
	}
	return &Connection{Conn: c.conn, Rotators: rotators}, nil
}

// serving returns the rotator of the certificate that the node serves with.
func (c *connector) serving() (*certs.Rotator, error) {
	var rotator *certs.Rotator
	failed, rotated := c.metrics.ServerCertificate(func() time.Time { return rotator.Ends() })
	rotator, err := certs.NewRotator(certs.RotatorConfig{
		Store:      certs.NewStore(c.cfg.CertDir, certs.ServerName),
		PendingKey: filepath.Join(c.cfg.CertDir, certs.ServerName+pendingKey),
		Wanted:     func() certs.Wanted { return certs.ServerOf(c.node.Name, []string{c.node.Name}, c.node.HostIPs()) },
	}, certs.RotatorDeps{
		Requests: func(bool) (certs.Requests, error) { return requests(c.conn) },
		Failed:   failed,
		Rotated:  rotated,
		Logger:   c.log,
	})
	return rotator, err
}

// pendingKey is the suffix of a key's file while a certificate for the key is being requested.
const pendingKey = ".key.tmp"

// client returns the config of a client of the API server, and the rotator of its certificate.
// There is a rotator if rotateCertificates is set, or if the node needs its first certificate.
func (c *connector) client(rotators *Rotators) (*rest.Config, error) {
	store := certs.NewStore(c.cfg.CertDir, certs.ClientName)
	config, err := clientcmd.BuildConfigFromFlags("", c.cfg.Kubeconfig)
	bootstrap := c.cfg.BootstrapKubeconfig != "" && (err != nil || !usable(config))
	if err := c.mend(store, config, bootstrap); err != nil {
		return nil, err
	}
	if bootstrap {
		if config, err = c.begin(store); err != nil {
			return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: reading %s: %w", c.cfg.Kubeconfig, err)
	}
	rotate := c.cfg.Kubelet.RotateCertificates && certs.HasPair(config)
	if !rotate && !bootstrap {
		return config, nil
	}
	if err := certs.UseStore(config, store); err != nil {
		return nil, fmt.Errorf("keeping the client certificate: %w", err)
	}
	rotators.Client, err = certs.NewRotator(certs.RotatorConfig{
		Store:      store,
		Once:       !c.cfg.Kubelet.RotateCertificates,
		PendingKey: filepath.Join(c.cfg.CertDir, certs.ClientName+pendingKey),
		Wanted:     func() certs.Wanted { return certs.ClientOf(c.node.Name) },
	}, certs.RotatorDeps{
		Requests: c.requests, Changed: c.changed, Logger: c.log,
		Failed: c.metrics.ClientCertificate(func() time.Time { return rotators.Client.Ends() }),
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-rotators.Client.Ready():
		close(c.open)
	default:
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return waiting{c.open, next} })
	return config, nil
}

// mend sets an unreadable certificate of the store aside if there is another way to authenticate:
// the bootstrap kubeconfig, or the kubeconfig's own certificate. If there is no other way, the
// error says what to do. config is the config from the kubeconfig; nil if the kubeconfig cannot be
// read.
func (c *connector) mend(store *certs.Store, config *rest.Config, bootstrap bool) error {
	_, damage := store.Current()
	rotate := config != nil && c.cfg.Kubelet.RotateCertificates && certs.HasPair(config)
	switch {
	case bootstrap, rotate && damage == nil, config == nil, !certs.HasPair(config):
	default:
		if err := certs.Readable(config); err != nil {
			return fmt.Errorf(
				"--kubeconfig: %s: %w; put a good one there, or give --bootstrap-kubeconfig to have a new one issued",
				c.cfg.Kubeconfig, err)
		}
	}
	if !bootstrap && !rotate {
		return nil
	}
	kept, err := store.SetAside()
	if kept != "" {
		c.log.Warn("the client certificate cannot be read; going on without it", "file", store.Path(), "kept", kept,
			"err", damage)
	}
	return err
}

// reloadPeriod is a little more than a second: for a second, client-go may use the content that it
// has read from a certificate's file.
const reloadPeriod = 1100 * time.Millisecond

// changed makes the connection use the new client certificate.
func (c *connector) changed(ctx context.Context) {
	if !retry.Sleep(ctx, reloadPeriod) {
		return
	}
	c.conn.CloseConnections()
	select {
	case <-c.open:
	default:
		close(c.open)
	}
}

// usable reports whether a kubeconfig's user can be used: the user has a certificate that has not
// expired, or another way to authenticate.
func usable(config *rest.Config) bool {
	if !certs.HasPair(config) {
		return config.BearerToken != "" || config.BearerTokenFile != "" || config.ExecProvider != nil ||
			config.AuthProvider != nil
	}
	return certs.Valid(config)
}

// begin writes the kubeconfig for a node that has no certificate yet. The kubeconfig names the
// bootstrap's API server, and the store's file, where the certificate is going to be.
func (c *connector) begin(store *certs.Store) (*rest.Config, error) {
	bootstrap, err := clientcmd.BuildConfigFromFlags("", c.cfg.BootstrapKubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", c.cfg.BootstrapKubeconfig, err)
	}
	if _, err := store.Current(); err != nil {
		if err := certs.Placeholder(store, c.node.Name); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(filepath.Dir(c.cfg.Kubeconfig), 0o755); err != nil {
		return nil, fmt.Errorf("making the kubeconfig's directory: %w", err)
	}
	if err := clientcmd.WriteToFile(kubeconfigOf(bootstrap, store.Path()), c.cfg.Kubeconfig); err != nil {
		return nil, fmt.Errorf("writing %s: %w", c.cfg.Kubeconfig, err)
	}
	return clientcmd.BuildConfigFromFlags("", c.cfg.Kubeconfig)
}

// kubeconfigOf returns a kubeconfig for the same API server as a bootstrap's, with a client
// certificate in a file.
func kubeconfigOf(bootstrap *rest.Config, pair string) clientcmdapi.Config {
	const name, user = "default-cluster", "default-auth"
	return clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: bootstrap.Host, InsecureSkipTLSVerify: bootstrap.Insecure, TLSServerName: bootstrap.ServerName,
			CertificateAuthority: bootstrap.CAFile, CertificateAuthorityData: bootstrap.CAData,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {ClientCertificate: pair, ClientKey: pair}},
		Contexts:       map[string]*clientcmdapi.Context{"default-context": {Cluster: name, AuthInfo: user}},
		CurrentContext: "default-context",
	}
}

// requests returns a client for certificate requests. It authenticates with the current
// certificate, or as the bootstrap's user.
func (c *connector) requests(valid bool) (certs.Requests, error) {
	if valid || c.cfg.BootstrapKubeconfig == "" {
		return requests(c.conn)
	}
	settings := c.settings
	settings.Kubeconfig = c.cfg.BootstrapKubeconfig
	conn, err := kube.Dial(settings)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	return requests(conn)
}

func requests(conn *kube.Conn) (certs.Requests, error) {
	return kube.NewClient[certificatesv1.CertificateSigningRequest](conn, certificatesv1.SchemeGroupVersion,
		"certificatesigningrequests")
}

// waiting holds requests back until the node has a certificate for them.
type waiting struct {
	ready <-chan struct{}
	next  http.RoundTripper
}

// RoundTrip waits and sends.
func (w waiting) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-w.ready:
		return w.next.RoundTrip(r)
	case <-r.Context().Done():
		return nil, fmt.Errorf("waiting for a client certificate: %w", r.Context().Err())
	}
}

// WrappedRoundTripper returns the transport beneath, as client-go's helpers look for it.
func (w waiting) WrappedRoundTripper() http.RoundTripper { return w.next }

// qps returns a bound on requests per second in client-go's form: a value below zero is no bound.
func qps(configured *int32) float32 {
	if configured == nil || *configured == 0 {
		return -1
	}
	return float32(*configured)
}
