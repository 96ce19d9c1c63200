package cluster

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/test/env"
)

const (
	// Server is the API server's address in the cluster's network.
	Server = "https://127.0.0.1:6443"
	// ServiceCIDR has the Services' addresses. serviceIP, the first of them, is the API server's.
	ServiceCIDR = "10.96.0.0/16"
	serviceIP   = "10.96.0.1"
	// startTimeout bounds the start of one part on a busy machine.
	startTimeout = 4 * time.Minute
)

// Options are the options of a cluster.
type Options struct {
	// APIServer and ControllerManager are additional flags for these programs.
	APIServer, ControllerManager []string
	// Containerd is as in env.Options.
	Containerd string
}

// Cluster is a control plane, and a containerd for its node.
type Cluster struct {
	*env.Env
	// Folder has the cluster's files.
	Folder string
	// Admin is the kubeconfig of a user who may do everything.
	Admin string
	// PKI has the certificates.
	PKI *PKI

	// Etcd and the others are the control plane's programs.
	Etcd, APIServer, ControllerManager, Scheduler *env.Program
	// Proxy is kube-proxy, see [Cluster.StartProxy].
	Proxy *env.Program

	// programs are the paths of the programs by name.
	programs map[string]string
	config   *rest.Config
	// nodeRules are what a kubelet may ask of the API server.
	nodeRules []rbacv1.PolicyRule
	// starts are the starts of kube-apiserver.
	starts []start
	// notTheAgents recognise the requests with a node's name that its agent has not sent: those of
	// a kubelet that takes turns with it, and of a thief.
	notTheAgents []func(asked) bool
}

// Start starts a cluster for a test and removes it when the test ends. It returns when pods can be
// created. If the test fails, its output gets the ends of the logs.
func Start(t testing.TB, opts Options) *Cluster {
	t.Helper()
	e := env.Containerd(t, env.Options{Version: opts.Containerd, OwnNetwork: true})
	c, err := newCluster(e, opts)
	if err != nil {
		t.Fatalf("prepare a cluster: %v", err)
	}
	if err := c.start(t.Context()); err != nil {
		t.Fatalf("start a cluster: %v", err)
	}
	return c
}

// newCluster makes the files of a cluster in an environment.
func newCluster(e *env.Env, opts Options) (*Cluster, error) {
	c := &Cluster{Env: e, Folder: filepath.Join(e.Dir, "cluster")}
	var err error
	if c.programs, err = findPrograms(e.Checkout); err != nil {
		return nil, err
	}
	if c.PKI, err = newPKI(filepath.Join(c.Folder, "pki")); err != nil {
		return nil, err
	}
	if c.Admin, err = c.kubeconfig("admin", Subject{User: "admin", Groups: []string{"system:masters"}}); err != nil {
		return nil, err
	}
	if err := c.makePrograms(opts); err != nil {
		return nil, err
	}
	c.config = &rest.Config{
		Host: Server, Dial: c.Dial, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAFile: c.PKI.CA.File, CertFile: filepath.Join(c.Folder, "client-admin.crt"),
			KeyFile: filepath.Join(c.Folder, "client-admin.key"),
		},
	}
	return c, nil
}

// start starts the parts in the order in which they need each other.
func (c *Cluster) start(ctx context.Context) error {
	if err := c.Etcd.Start(); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	if err := errors.Join(c.ControllerManager.Start(), c.Scheduler.Start()); err != nil {
		return err
	}
	if _, errOut, err := c.TryKubectl(ctx, "", "create", "clusterrolebinding", kubeletClients,
		"--clusterrole", "system:kubelet-api-admin", "--group", kubeletClients); err != nil {
		return fmt.Errorf("let the API server use agents: %w: %s", err, errOut)
	}
	if err := c.readNodeRules(ctx); err != nil {
		return err
	}
	// The API refuses pods of the namespace default until the namespace has its service account.
	return c.await(ctx, c.ControllerManager, "/api/v1/namespaces/default/serviceaccounts/default")
}

// StartAPIServer starts kube-apiserver again and waits until it reports that it is ready.
func (c *Cluster) StartAPIServer(t testing.TB) {
	t.Helper()
	if err := c.startAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// StartProxy starts kube-proxy for the node env.NodeName. The node should have registered, because
// kube-proxy looks for its addresses only every thirty seconds.
func (c *Cluster) StartProxy(t testing.TB) {
	t.Helper()
	if err := c.Proxy.Start(); err != nil {
		t.Fatal(err)
	}
}

func (c *Cluster) startAPIServer(ctx context.Context) error {
	began := time.Now()
	if err := c.APIServer.Start(); err != nil {
		return err
	}
	err := c.await(ctx, c.APIServer, "/readyz")
	c.starts = append(c.starts, start{began: began, ready: time.Now()})
	return err
}

// await waits until the API answers a path, which depends on that part.
func (c *Cluster) await(ctx context.Context, part *env.Program, path string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	client, err := rest.UnversionedRESTClientFor(restDefaults(c.Config()))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	for pace := env.NewPace(); ; {
		err := client.Get().AbsPath(path).Do(ctx).Error()
		if err == nil {
			return nil
		}
		if !part.Running() {
			return fmt.Errorf("wait for %s: it has ended: %w", part.Name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s (%s): %w: %w", part.Name, path, ctx.Err(), err)
		case <-time.After(pace.Pause()):
		}
	}
}

// Config returns the config of a client-go client that may do everything. The caller may change it.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// ConfigFor returns the config of a client with a user's rights.
func (c *Cluster) ConfigFor(t testing.TB, name string, subject Subject) *rest.Config {
	t.Helper()
	pair, err := c.PKI.CA.Issue(c.Folder, "client-"+name, subject)
	if err != nil {
		t.Fatal(err)
	}
	config := c.Config()
	config.CertFile, config.KeyFile = pair.Cert, pair.Key
	return config
}
