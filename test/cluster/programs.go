package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/test/env"
)

// findPrograms finds what "scripts/deps cluster" puts beside containerd, or etcd on the host.
func findPrograms(checkout string) (map[string]string, error) {
	found := map[string]string{}
	for _, name := range []string{
		"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "kubelet",
		"metrics-server",
	} {
		path := filepath.Join(checkout, ".cache", "bin", name)
		if _, err := os.Stat(path); err != nil && name == "etcd" {
			path, _ = exec.LookPath(name)
		}
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("find %s (run \"scripts/deps cluster\"): %w", name, err)
		}
		found[name] = path
	}
	return found, nil
}

// makePrograms prepares every part of the control plane. No part competes for a lease, because
// there is one of each.
func (c *Cluster) makePrograms(opts Options) error {
	configs := map[string]string{}
	for _, user := range []string{"kube-controller-manager", "kube-scheduler"} {
		path, err := c.kubeconfig(user, Subject{User: "system:" + user})
		if err != nil {
			return err
		}
		configs[user] = path
	}
	if err := os.MkdirAll(c.EtcdData(), 0o700); err != nil {
		return fmt.Errorf("make etcd's folder: %w", err)
	}
	c.Etcd = c.program("etcd", c.etcdFlags()...)
	if err := os.WriteFile(c.auditPolicy(), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	c.APIServer = c.program("kube-apiserver", slices.Concat(c.apiServerFlags(), opts.APIServer)...)
	c.ControllerManager = c.program("kube-controller-manager",
		slices.Concat(c.controllerFlags(configs["kube-controller-manager"]), opts.ControllerManager)...)
	c.Scheduler = c.program("kube-scheduler",
		"--kubeconfig", configs["kube-scheduler"], "--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir",
		c.Folder,
	)
	return c.makeProxy()
}

// makeProxy prepares kube-proxy, which needs no other part than the API server.
func (c *Cluster) makeProxy() error {
	config, err := c.kubeconfig("kube-proxy", Subject{User: "system:kube-proxy"})
	if err != nil {
		return err
	}
	// The size of the connection table does not belong to a network namespace. 0 leaves it
	// unchanged.
	c.Proxy = c.program("kube-proxy",
		"--kubeconfig", config, "--hostname-override", env.NodeName, "--proxy-mode", "iptables",
		"--cluster-cidr", c.PodCIDR.String(),
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s",
		"--conntrack-tcp-timeout-close-wait=0s",
		"--healthz-bind-address", "127.0.0.1:10256", "--iptables-min-sync-period", "100ms",
	)
	return nil
}

// etcdClient is where etcd listens. Nobody else is in the cluster's network.
const etcdClient = "http://127.0.0.1:2379"

// EtcdData returns etcd's folder. While etcd does not run, a test may copy the folder, and replace
// it by an older copy.
func (c *Cluster) EtcdData() string { return filepath.Join(c.Folder, "etcd") }

func (c *Cluster) program(name string, flags ...string) *env.Program {
	return c.NewProgram(name, append([]string{c.programs[name]}, flags...)...)
}

func (c *Cluster) etcdFlags() []string {
	return []string{
		"--data-dir", c.EtcdData(), "--listen-client-urls", etcdClient, "--advertise-client-urls", etcdClient,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--logger", "zap", "--log-level", "warn",
	}
}

func (c *Cluster) apiServerFlags() []string {
	p := c.PKI
	return []string{
		"--etcd-servers", etcdClient, "--bind-address", "0.0.0.0", "--advertise-address", env.HostIP, "--secure-port",
		"6443",
		"--tls-cert-file", p.Server.Cert, "--tls-private-key-file", p.Server.Key, "--client-ca-file", p.CA.File,
		"--kubelet-client-certificate", p.KubeletClient.Cert, "--kubelet-client-key", p.KubeletClient.Key,
		"--kubelet-preferred-address-types", "InternalIP,Hostname",
		"--proxy-client-cert-file", p.FrontProxyClient.Cert, "--proxy-client-key-file", p.FrontProxyClient.Key,
		"--requestheader-client-ca-file", p.FrontProxy.File, "--requestheader-allowed-names", "front-proxy-client",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--service-account-key-file", p.ServiceAccounts.Cert, "--service-account-signing-key-file",
		p.ServiceAccounts.Key,
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local", "--service-cluster-ip-range",
		ServiceCIDR,
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--enable-bootstrap-token-auth", "--allow-privileged",
		// With this, watches end at the server's stop, rather than a minute later.
		"--shutdown-watch-termination-grace-period", "1s",
		"--audit-policy-file", c.auditPolicy(), "--audit-log-path", c.auditLog(),
		"--cert-dir", c.Folder,
	}
}

func (c *Cluster) controllerFlags(kubeconfig string) []string {
	p := c.PKI
	return []string{
		"--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
		"--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", c.Folder,
		"--use-service-account-credentials",
		"--controllers", "*,bootstrap-signer-controller,token-cleaner-controller",
		"--root-ca-file", p.CA.File, "--cluster-signing-cert-file", p.CA.File, "--cluster-signing-key-file",
		p.CA.KeyFile,
		"--service-account-private-key-file", p.ServiceAccounts.Key,
		"--allocate-node-cidrs", "--cluster-cidr", c.PodCIDR.String(), "--node-cidr-mask-size",
		fmt.Sprint(c.PodCIDR.Bits()),
		"--service-cluster-ip-range", ServiceCIDR,
	}
}

// restDefaults completes a config for a client that uses plain paths.
func restDefaults(config *rest.Config) *rest.Config {
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	return config
}
