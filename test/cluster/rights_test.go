//go:build cluster

package cluster

import (
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/berthd/berth/test/env"
)

// guarded are what somebody with the node's credential would like to reach: another node, its pod,
// and objects that no pod of this node uses.
const guarded = `apiVersion: v1
kind: Node
metadata: {name: other}
---
apiVersion: v1
kind: Secret
metadata: {name: others}
stringData: {k: v}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: others}
data: {k: v}
---
apiVersion: v1
kind: Pod
metadata: {name: elsewhere}
spec:
  nodeName: other
  containers: [{name: main, image: berth.local/busybox:v1, envFrom: [{secretRef: {name: others}}]}]
`

// mirrorWithSecret is a mirror pod that would give the node a Secret.
const mirrorWithSecret = `apiVersion: v1
kind: Pod
metadata: {name: mirror, annotations: {kubernetes.io/config.mirror: x}}
spec:
  nodeName: ` + env.NodeName + `
  containers: [{name: main, image: berth.local/busybox:v1, envFrom: [{secretRef: {name: others}}]}]
`

// TestStolenCredential checks that a node of berth needs no right that a kubelet does not have.
// Nothing in the cluster binds roles to nodes, and the node asks only for what is in the
// ClusterRole system:node (which every test of a node checks). Somebody with the node's certificate
// is refused what a kubelet is refused, and can be no other user.
func TestStolenCredential(t *testing.T) {
	c := Start(t, Options{})
	c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	c.Apply(t, guarded+"---\n"+target)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/target", "--timeout=180s")

	var bindings struct{ Items []rbacv1.ClusterRoleBinding }
	if err := json.Unmarshal([]byte(c.Kubectl(t, "get", "clusterrolebindings,rolebindings", "-A", "-o", "json")),
		&bindings); err != nil || len(bindings.Items) == 0 {
		t.Fatalf("%d bindings: %v", len(bindings.Items), err)
	}
	for _, b := range bindings.Items {
		for _, s := range b.Subjects {
			if s.Name == "system:nodes" || strings.HasPrefix(s.Name, "system:node:") {
				t.Errorf("%s binds %s to %s", b.Name, b.RoleRef.Name, s.Name)
			}
		}
	}

	// The thief has the file with which the agent connects, and so the node's own certificate. The
	// requests of the two come from different addresses.
	c.notTheAgents = append(c.notTheAgents, from(env.HostIP))
	thief := func(args ...string) []string {
		return append([]string{
			"--kubeconfig", filepath.Join(c.Folder, "node-"+env.NodeName+".conf"), "--server",
			"https://" + net.JoinHostPort(env.HostIP, "6443"),
		}, args...)
	}
	if out := c.Kubectl(t, thief("auth", "whoami")...); !strings.Contains(out, "system:node:"+env.NodeName) {
		t.Fatalf("the credential is not the node's: %s", out)
	}
	for name, tc := range map[string]struct {
		args  []string
		stdin string
	}{
		"to be somebody else":      {args: []string{"get", "nodes", "--as", "admin", "--as-group", "system:masters"}},
		"all secrets":              {args: []string{"get", "secrets", "-A"}},
		"a secret of another node": {args: []string{"get", "secret", "others"}},
		"a config map of nobody":   {args: []string{"get", "configmap", "others"}},
		"a token of any account":   {args: []string{"create", "token", "default", "-n", "kube-public"}},
		"a token for another's pod": {
			args: []string{"create", "token", "default", "--bound-object-kind=Pod", "--bound-object-name=elsewhere"},
		},
		"another node's status": {
			args: []string{"patch", "node", "other", "--subresource=status", "-p", `{"status":{"phase":"Running"}}`},
		},
		"another node's lease": {args: []string{"get", "lease", "other", "-n", "kube-node-lease"}},
		"a restricted label": {
			args: []string{"label", "node", env.NodeName, "node-restriction.kubernetes.io/trusted=yes"},
		},
		"its own taints":     {args: []string{"taint", "node", env.NodeName, "a=b:NoSchedule"}},
		"to delete itself":   {args: []string{"delete", "node", env.NodeName}},
		"another node's pod": {args: []string{"delete", "pod", "elsewhere"}},
		"another node's pod's status": {
			args: []string{"patch", "pod", "elsewhere", "--subresource=status", "-p", `{"status":{"phase":"Failed"}}`},
		},
		"a pod of its own":     {args: []string{"run", "mine", "--image=berth.local/busybox:v1"}},
		"a secret by a mirror": {args: []string{"create", "-f", "-"}, stdin: mirrorWithSecret},
		"a command in a pod":   {args: []string{"exec", "target", "--", "id"}},
		"its port by the API": {
			args: []string{"get", "--raw", "/api/v1/nodes/" + env.NodeName + "/proxy/pods"},
		},
		"a role": {
			args: []string{
				"create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--group=system:nodes",
			},
		},
	} {
		_, errOut, err := c.TryKubectl(t.Context(), tc.stdin, thief(tc.args...)...)
		if ExitCode(err) != 1 || !strings.Contains(strings.ToLower(errOut), "forbidden") {
			t.Errorf("%s: %v %s", name, err, errOut)
		}
	}
	if out := c.Kubectl(t, thief("get", "pods", "--field-selector", "spec.nodeName="+env.NodeName, "-o",
		"name")...); !strings.Contains(out, "target") {
		t.Errorf("its own pods are %q: nobody looked as the node", out)
	}
}
