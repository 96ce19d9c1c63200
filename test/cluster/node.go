package cluster

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/test/env"
)

// StartNode starts berth as the cluster's node env.NodeName. It does not wait for the node;
// [Cluster.WaitNodeReady] does. At the test's end it checks that no request of the node was
// refused.
func (c *Cluster) StartNode(t testing.TB, opts env.AgentOptions) *env.Agent {
	t.Helper()
	a := c.StartAgent(t, c.NodeOptions(t, env.NodeName, opts))
	t.Cleanup(func() { c.checkRefusals(t) })
	return a
}

// NodeOptions adds to an agent's options what makes it a node of this cluster, with the certificate
// of the node with that name: its kubeconfig and address, and the authentication and authorization
// that kubeadm sets. Settings that are already in the options have priority.
func (c *Cluster) NodeOptions(t testing.TB, node string, opts env.AgentOptions) env.AgentOptions {
	t.Helper()
	return nodeOptions(t, node, c.NodeKubeconfig(t, node), c.PKI.CA.File, opts)
}

// nodeOptions does that for any kubeconfig and the file of any authority.
func nodeOptions(t testing.TB, node, kubeconfig, authority string, opts env.AgentOptions) env.AgentOptions {
	t.Helper()
	config := map[string]any{
		"enableServer": true, "address": "0.0.0.0", "port": 10250,
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": authority},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"clusterDomain": "cluster.local",
	}
	var extra map[string]any
	if err := yaml.Unmarshal([]byte(opts.Kubelet), &extra); err != nil {
		t.Fatalf("read the node's config: %v", err)
	}
	maps.Copy(config, extra)
	text, err := yaml.Marshal(config)
	if err != nil {
		t.Fatalf("write the node's config: %v", err)
	}
	opts.Kubelet = string(text)
	opts.Flags = append([]string{
		"--kubeconfig", kubeconfig, "--hostname-override", node, "--node-ip", env.HostIP,
	}, opts.Flags...)
	return opts
}

// WaitNodeReady waits until the node env.NodeName is Ready in the API.
func (c *Cluster) WaitNodeReady(t testing.TB) {
	t.Helper()
	c.Eventually(t, func(out string) error {
		if !strings.HasPrefix(out, "True ") {
			return fmt.Errorf("its condition Ready is %q", out)
		}
		return nil
	}, "get", "node", env.NodeName, "-o",
		`jsonpath={range .status.conditions[?(@.type=="Ready")]}{.status} {.reason} {.message}{end}`)
}
