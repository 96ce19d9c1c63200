//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

const (
	// secondNode is the node of another environment, and secondIP its address.
	secondNode, secondIP = "second", "192.0.2.2"
	// cable is the interface of the first node's network at whose other end nobody is yet.
	cable = "node1"
)

// connect puts the node of another environment at the other end of the first one's interface. What
// it had there before has no use.
func connect(first, second *env.Env) error {
	network, err := os.Open(filepath.Join(second.Dir, "netns"))
	if err != nil {
		return err
	}
	defer network.Close()
	to := func(subnet netip.Prefix, via string) error {
		_, destination, err := net.ParseCIDR(subnet.Masked().String())
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: destination, Gw: net.ParseIP(via)})
	}
	link := func(do func(netlink.Link) error) error {
		l, err := netlink.LinkByName(cable)
		if err != nil {
			return fmt.Errorf("find %s: %w", cable, err)
		}
		return do(l)
	}
	if err := second.In(func() error { return link(netlink.LinkDel) }); err != nil {
		return err
	}
	if err := first.In(func() error {
		return errors.Join(to(second.PodCIDR, secondIP), link(func(l netlink.Link) error {
			return netlink.LinkSetNsFd(l, int(network.Fd()))
		}))
	}); err != nil {
		return err
	}
	return second.In(func() error {
		return link(func(l netlink.Link) error {
			address, err := netlink.ParseAddr(secondIP + "/24")
			if err != nil {
				return err
			}
			if err := errors.Join(netlink.AddrAdd(l, address), netlink.LinkSetUp(l)); err != nil {
				return err
			}
			return to(first.PodCIDR, env.HostIP)
		})
	})
}

// spread is a Deployment whose pods are spread over the nodes.
const spread = `apiVersion: apps/v1
kind: Deployment
metadata: {name: spread}
spec:
  replicas: 4
  selector: {matchLabels: {app: spread}}
  template:
    metadata: {labels: {app: spread}}
    spec:
      terminationGracePeriodSeconds: 0
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule,
           labelSelector: {matchLabels: {app: spread}}}
      containers:
        - name: main
          image: berth.local/busybox:v1
          command: [sh, -c, "echo started; exec sleep 3600"]
          env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
`

// TestBundledTwoNodes has a second machine, with its own containerd, network and agent, join
// berth-apiserver with a token. The scheduler spreads pods over both nodes, and kubectl reaches
// the pods of either.
func TestBundledTwoNodes(t *testing.T) {
	c := newBundled(t, "--workloads", "--bind-address", "0.0.0.0")
	second := env.Containerd(t, env.Options{OwnNetwork: true})
	if err := connect(c.Env, second); err != nil {
		t.Fatal(err)
	}
	c.startBundled(t)
	c.startBundledNode(t)
	account(t, c)
	startSecond(t, c, second)
	c.Kubectl(t, "wait", "--for=create", "node/"+secondNode, "--timeout=180s") // a wait for a condition needs it
	c.Kubectl(t, "wait", "--for=condition=Ready", "node/"+env.NodeName, "node/"+secondNode, "--timeout=180s")

	c.Apply(t, spread)
	c.Kubectl(t, "rollout", "status", "deployment/spread", "--timeout=180s")
	pods := map[string]int{}
	for line := range strings.Lines(c.Kubectl(t, "get", "pods", "-l", "app=spread", "-o",
		"jsonpath={range .items[*]}{.metadata.name} {.spec.nodeName}{\"\\n\"}{end}")) {
		name, node, _ := strings.Cut(strings.TrimSpace(line), " ")
		pods[node]++
		if out := c.Kubectl(t, "logs", name); strings.TrimSpace(out) != "started" {
			t.Errorf("the log of %s on %s is %q", name, node, out)
		}
		if out := c.Kubectl(t, "exec", name, "--", "sh", "-c", "echo $NODE"); strings.TrimSpace(out) != node {
			t.Errorf("%s on %s says that it is on %q", name, node, out)
		}
	}
	if pods[env.NodeName] != 2 || pods[secondNode] != 2 {
		t.Errorf("the nodes have %v pods", pods)
	}
	c.Kubectl(t, "delete", "deployment", "spread", "--timeout=180s")
	c.Kubectl(t, "wait", "--for=delete", "pod", "-l", "app=spread", "--timeout=180s")
}

// startSecond starts the second node's agent with a token, and approves its serving certificate.
func startSecond(t *testing.T, c *Cluster, second *env.Env) {
	t.Helper()
	data := filepath.Dir(c.Admin)
	token := c.bundledCommand(t, "token", "create", "--ttl", "1h", "--server", "https://"+env.HostIP+":6443")
	join := filepath.Join(second.Dir, "join.kubeconfig")
	if err := os.WriteFile(join, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	second.StartAgent(t, nodeOptions(t, secondNode, filepath.Join(second.Dir, "kubeconfig"),
		filepath.Join(data, "pki", "ca.crt"), env.AgentOptions{
			Kubelet: "rotateCertificates: true\nserverTLSBootstrap: true\n",
			Flags:   []string{"--bootstrap-kubeconfig", join, "--node-ip", secondIP},
		}))
	requests := []string{
		"get", "csr", "--field-selector", "spec.signerName=kubernetes.io/kubelet-serving", "-o", "name",
	}
	c.Eventually(t, Contains("certificatesigningrequest"), requests...)
	for _, name := range strings.Fields(c.Kubectl(t, requests...)) {
		c.Kubectl(t, "certificate", "approve", strings.TrimPrefix(name, "certificatesigningrequest.certificates.k8s.io/"))
	}
}

// TestBundledServices shows that the manifests of "berth-apiserver services" bring packets to the
// pods of a Service, by its ClusterIP and by a port of the node, and that pods find Services by
// name and reach the API as a client in a pod does. kube-proxy and CoreDNS are upstream's.
func TestBundledServices(t *testing.T) {
	c := newBundled(t, "--workloads", "--bind-address", "0.0.0.0", "--advertise-address", env.HostIP)
	built, err := images.Services(t.Context(), c.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range built {
		if err := c.Import(t.Context(), image); err != nil {
			t.Fatal(err)
		}
	}
	c.startBundled(t)
	c.startBundledNode(t, `clusterDNS: ["10.96.0.10"]`)
	account(t, c)
	manifests := c.bundledCommand(t, "services", "--kube-proxy-image", images.KubeProxy, "--coredns-image", images.CoreDNS)
	c.Apply(t, manifests)
	c.Apply(t, web+"---\n"+client)
	for _, what := range []string{"daemonset/kube-proxy", "deployment/coredns"} {
		c.Kubectl(t, "-n", "kube-system", "rollout", "status", what, "--timeout=180s")
	}
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/client", "--timeout=180s")
	services(t, c)
	for _, name := range []string{"web", "web.default", "web.default.svc.cluster.local"} {
		env.Eventually(t, "a pod to reach a Service as "+name, func() error {
			_, err := c.fromPod(t.Context(), "http://"+name+"/")
			return err
		})
	}
	c.Apply(t, manifests) // a second time changes nothing
	c.Kubectl(t, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=180s")
	c.Kubectl(t, "delete", "service", "web")
	env.Eventually(t, "the name to be gone", func() error {
		if out, err := c.fromPod(t.Context(), "http://web.default.svc.cluster.local/"); err == nil {
			return fmt.Errorf("it answers: %s", out)
		}
		return nil
	})
}

// TestBundledServicesRefused shows what "berth-apiserver services" says to a server on which its
// manifests cannot work.
func TestBundledServicesRefused(t *testing.T) {
	for _, tc := range []struct{ name, want, flag string }{
		{"without workloads", "--workloads", "--bind-address=0.0.0.0"},
		{"on the loopback", "--bind-address", "--workloads"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newBundled(t, tc.flag)
			c.startBundled(t)
			if out, err := c.tryBundledCommand(t, "services"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it says %v, not that %s is missing:\n%s", err, tc.want, out)
			}
		})
	}
}
