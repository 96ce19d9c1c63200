package agent

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

	"github.com/berthd/berth/agent/certs"
	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/metrics"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/tracing"
	"github.com/berthd/berth/configs"
)

// Rotators keep the node's certificates that the cluster signs; each is nil where it is not wanted.
type Rotators struct {
	Client, Serving *certs.Rotator
}

// loops are the rotators' parts of the agent. They come first: without a certificate nothing reaches the API server.
func (r Rotators) loops() []loop {
	var list []loop
	if r.Client != nil {
		list = append(list, loop{"client certificate", r.Client.Run})
	}
	if r.Serving != nil {
		list = append(list, loop{"serving certificate", r.Serving.Run})
	}
	return list
}

// connector makes the connection to the cluster's API server, and what keeps its certificates.
type connector struct {
	cfg  *configs.Config
	node *node.Node
	// settings are the connection's, without a kubeconfig.
	settings cluster.Config
	metrics  *metrics.Set
	log      *slog.Logger
	conn     *cluster.Conn
	// open is closed once requests can be made.
	open chan struct{}
}

// connect prepares the connection to the cluster's API server; nil for a node without a cluster. The API server need not be there. Where the node has no
// client certificate yet, requests wait until it has.
func connect(cfg *configs.Config, n *node.Node, version string, set *metrics.Set, traces *tracing.Tracing, log *slog.Logger) (*cluster.Conn, Rotators, error) {
	if cfg.Kubeconfig == "" {
		return nil, Rotators{}, nil
	}
	k := &cfg.Kubelet
	c := &connector{cfg: cfg, node: n, metrics: set, log: log, open: make(chan struct{}), settings: cluster.Config{
		UserAgent: fmt.Sprintf("berth/%s (%s/%s)", version, runtime.GOOS, runtime.GOARCH),
		QPS:       qps(k.KubeAPIQPS), Burst: int(k.KubeAPIBurst), ContentType: k.ContentType, Observe: set.APIRequest, Wrap: traces.Transport,
	}}
	var rotators Rotators
	config, err := c.client(&rotators)
	if err != nil {
		return nil, rotators, err
	}
	if c.conn, err = cluster.New(config, c.settings); err != nil {
		return nil, rotators, fmt.Errorf("--kubeconfig: %w", err)
	}
	if k.ServerTLSBootstrap && k.TLSCertFile == "" && cfg.ServesAPI() {
		failed, rotated := set.ServerCertificate(func() time.Time { return rotators.Serving.Ends() })
		rotators.Serving, err = certs.NewRotator(certs.RotatorConfig{
			Store:      certs.NewStore(cfg.CertDir, certs.ServerName),
			PendingKey: filepath.Join(cfg.CertDir, certs.ServerName+pendingKey),
			Wanted:     func() certs.Wanted { return certs.ServerOf(n.Name, []string{n.Name}, n.HostIPs()) },
		}, certs.RotatorDeps{Requests: func(bool) (certs.Requests, error) { return requests(c.conn) }, Failed: failed, Rotated: rotated, Logger: log})
	}
	return c.conn, rotators, err
}

// pendingKey ends the name of the key that a certificate is being asked for.
const pendingKey = ".key.tmp"

// client returns how to be a client of the API server, and the rotator that keeps its certificate, if any does: with rotateCertificates, or to get the first.
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
		Store: store, Once: !c.cfg.Kubelet.RotateCertificates, PendingKey: filepath.Join(c.cfg.CertDir, certs.ClientName+pendingKey),
		Wanted: func() certs.Wanted { return certs.ClientOf(c.node.Name) },
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

// mend sets a certificate of the store aside that cannot be read, where there is another way in: the bootstrap's, or the kubeconfig's own certificate. Where there is none, it
// says what to do. config is the kubeconfig's, nil where that cannot be read.
func (c *connector) mend(store *certs.Store, config *rest.Config, bootstrap bool) error {
	_, damage := store.Current()
	rotate := config != nil && c.cfg.Kubelet.RotateCertificates && certs.HasPair(config)
	switch {
	case bootstrap, rotate && damage == nil, config == nil, !certs.HasPair(config):
	default:
		if err := certs.Readable(config); err != nil {
			return fmt.Errorf("--kubeconfig: %s: %w; put a good one there, or give --bootstrap-kubeconfig to have a new one issued", c.cfg.Kubeconfig, err)
		}
	}
	if !bootstrap && !rotate {
		return nil
	}
	kept, err := store.SetAside()
	if kept != "" {
		c.log.Warn("the client certificate cannot be read; going on without it", "file", store.Path(), "kept", kept, "err", damage)
	}
	return err
}

// reloadPeriod is how long client-go may use what it has read of a certificate's file (a second), and a little.
const reloadPeriod = 1100 * time.Millisecond

// changed makes the connection use the new client certificate.
func (c *connector) changed(ctx context.Context) {
	if !tasks.Sleep(ctx, reloadPeriod) {
		return
	}
	c.conn.CloseConnections()
	select {
	case <-c.open:
	default:
		close(c.open)
	}
}

// usable reports whether a kubeconfig's user can be used: a certificate that is not over, or something else than a certificate.
func usable(config *rest.Config) bool {
	if !certs.HasPair(config) {
		return config.BearerToken != "" || config.BearerTokenFile != "" || config.ExecProvider != nil || config.AuthProvider != nil
	}
	return certs.Valid(config)
}

// begin writes the kubeconfig for a node that has no certificate yet: the bootstrap's API server, and the certificate that is going to be in the store.
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

// kubeconfigOf returns a kubeconfig for the same API server as a bootstrap's, with a client certificate in a file.
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

// requests returns where to ask for a client certificate: with the one that there is, or as the bootstrap's user.
func (c *connector) requests(valid bool) (certs.Requests, error) {
	if valid || c.cfg.BootstrapKubeconfig == "" {
		return requests(c.conn)
	}
	settings := c.settings
	settings.Kubeconfig = c.cfg.BootstrapKubeconfig
	conn, err := cluster.Dial(settings)
	if err != nil {
		return nil, fmt.Errorf("--bootstrap-kubeconfig: %w", err)
	}
	return requests(conn)
}

func requests(conn *cluster.Conn) (certs.Requests, error) {
	return cluster.NewClient[certificatesv1.CertificateSigningRequest](conn, certificatesv1.SchemeGroupVersion, "certificatesigningrequests")
}

// waiting holds requests until there is a certificate to make them with.
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

// qps is a bound on requests per second as client-go has it: below zero for none.
func qps(configured *int32) float32 {
	if configured == nil || *configured == 0 {
		return -1
	}
	return float32(*configured)
}
