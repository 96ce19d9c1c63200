//go:build conformance

package cluster

import (
	"os"
	"testing"

	"github.com/berthd/berth/test/env"
)

// serverVariable names the environment variable that says which API server a suite gets.
const serverVariable = "BERTH_SERVER"

// startServer starts the API server of serverVariable for one of upstream's suites, with more
// flags, and berth as its node with these lines of a KubeletConfiguration. It returns when the node
// is ready. "bundled" is berth-apiserver, with all that it can serve; without a value it is
// kube-apiserver with upstream's other programs.
func startServer(t *testing.T, config string, flags ...string) (*Cluster, *env.Agent) {
	t.Helper()
	switch server := os.Getenv(serverVariable); server {
	case "":
		c := Start(t, Options{APIServer: flags})
		c.ServeUpstream(t)
		a := c.StartNode(t, env.AgentOptions{Kubelet: config})
		c.WaitNodeReady(t)
		return c, a
	case "bundled":
		return startWholeBundled(t, config, flags...)
	default:
		t.Fatalf("%s is %q: use bundled, or none for kube-apiserver", serverVariable, server)
		return nil, nil
	}
}

// startWholeBundled is startServer for berth-apiserver. As with kube-apiserver, the test fails at
// its end if a request of the node was refused.
func startWholeBundled(t *testing.T, config string, flags ...string) (*Cluster, *env.Agent) {
	t.Helper()
	c := newBundled(t, append([]string{"--bind-address", "0.0.0.0", "--workloads", "--crds", "--openapi-v2"},
		flags...)...)
	c.startBundled(t)
	c.ServeUpstream(t)
	if err := c.readNodeRules(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.useBundledPKI(t)
	if err := c.makeProxy(); err != nil {
		t.Fatal(err)
	}
	a := c.startBundledNode(t, config)
	t.Cleanup(func() { c.checkRefusals(t) })
	c.Eventually(t, Contains("default"), "get", "serviceaccounts", "-o", "name")
	return c, a
}
