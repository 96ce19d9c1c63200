//go:build cluster

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// TestControlPlane checks that a control plane starts, answers kubectl and keeps nodes to their own
// rights. Its API server can end, freeze and come back.
func TestControlPlane(t *testing.T) {
	c := Start(t, Options{})
	for _, name := range []string{"default", "kube-system", "kube-node-lease", "kube-public"} {
		if out := c.Kubectl(t, "get", "namespaces", "-o", "name"); !strings.Contains(out, "namespace/"+name) {
			t.Errorf("no namespace %s in\n%s", name, out)
		}
	}
	if out := c.Kubectl(t, "version"); !strings.Contains(out, "Server Version: v1.36.") {
		t.Errorf("the version is\n%s", out)
	}

	// The scheduler waits for a node.
	c.Apply(t,
		"{apiVersion: v1, kind: Pod, metadata: {name: waiting}, spec: {containers: [{name: main, image: "+
			"berth.local/busybox:v1}]}}")
	c.Eventually(t, Contains("Unschedulable"), "get", "pod", "waiting", "-o", "jsonpath={.status.conditions[*].reason}")

	node := c.Kubeconfig(t, "node-a", nodeSubject("a"))
	for name, tc := range map[string]struct {
		args []string
		want string
	}{
		"its secrets only":     {[]string{"get", "secrets", "-A"}, "cannot list resource"},
		"its own pods only":    {[]string{"delete", "pod", "waiting"}, "forbidden"},
		"no other node's name": {[]string{"create", "-f", "-"}, "is not allowed to modify node"},
	} {
		_, errOut, err := c.TryKubectl(t.Context(), "{apiVersion: v1, kind: Node, metadata: {name: b}}",
			append([]string{"--kubeconfig", node}, tc.args...)...)
		if ExitCode(err) != 1 || !strings.Contains(errOut, tc.want) {
			t.Errorf("%s: %v %s", name, err, errOut)
		}
	}

	if err := c.APIServer.Freeze(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	if out, errOut, err := c.TryKubectl(ctx, "", "get", "namespaces"); err == nil || ctx.Err() == nil {
		t.Errorf("a frozen API server answered: %s%s", out, errOut)
	}
	cancel()
	if err := c.APIServer.Thaw(); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "get", "namespaces")
	if err := c.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, errOut, err := c.TryKubectl(t.Context(), "", "get", "namespaces"); err == nil ||
		!strings.Contains(errOut, "refused") {
		t.Errorf("a stopped API server: %v %s", err, errOut)
	}
	c.StartAPIServer(t)
	c.Kubectl(t, "get", "pod", "waiting")
}

// TestSideBySide checks two clusters at the same time. Each has a kube-proxy that knows only that
// cluster.
func TestSideBySide(t *testing.T) {
	one, two := Start(t, Options{}), Start(t, Options{})
	one.Kubectl(t, "create", "namespace", "only-here")
	if out := two.Kubectl(t, "get", "namespaces"); strings.Contains(out, "only-here") {
		t.Errorf("the other cluster has it, too:\n%s", out)
	}
	for _, c := range []*Cluster{one, two} {
		c.announce(t)
		c.StartProxy(t)
		// The API server can be reached at its Service's address, as pods do.
		env.Eventually(t, "kube-proxy's rules", func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			conn, err := c.Dial(ctx, "tcp", serviceIP+":443")
			if err == nil {
				err = conn.Close()
			}
			return err
		})
	}
}
