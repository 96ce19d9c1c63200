//go:build cluster

package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// talker is a static pod that writes a line and waits.
const talker = `apiVersion: v1
kind: Pod
metadata:
  name: talker
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, "echo hello; exec sleep 3600"]
`

// readers may read everything of nodes, and nothing else.
const readers = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: readers}
rules:
  - {apiGroups: [""], resources: [nodes/proxy, nodes/metrics, nodes/stats], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: scrapers}
rules:
  - {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: readers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: readers}
subjects: [{kind: User, name: reader, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: scrapers}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: scrapers}
subjects: [{kind: ServiceAccount, name: default, namespace: kube-public}]
`

// caller sends requests to the agent's port as a user.
type caller struct {
	c     *Cluster
	pair  *Pair
	token string
}

func (w caller) do(t *testing.T, method, path string, headers ...string) (int, string) {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if w.pair != nil {
		cert, err := tls.LoadX509KeyPair(w.pair.Cert, w.pair.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "https://"+env.HostIP+":10250"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.token != "" {
		req.Header.Set("Authorization", "Bearer "+w.token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{TLSClientConfig: config, DialContext: w.c.Dial, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil && resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// may waits until the API server knows that a user may read a subresource of nodes. The API server
// uses new roles a moment after it stores them, and callers remember its refusals for a while.
func (c *Cluster) may(t *testing.T, user, subresource string) {
	t.Helper()
	c.Eventually(t, Contains("yes"), "auth", "can-i", "get", "nodes", "--subresource", subresource, "--as", user)
}

// TestPort checks who may use the agent's port, with a real API server that decides about tokens
// and rights.
func TestPort(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	a.WriteManifest(t, "talker.yaml", talker)
	a.WaitReady(t, "talker")
	c.Apply(t, readers)
	c.may(t, "reader", "proxy")
	c.may(t, "system:serviceaccount:kube-public:default", "metrics")

	certificate := func(name string, subject Subject) *Pair {
		pair, err := c.PKI.CA.Issue(c.Folder, name, subject)
		if err != nil {
			t.Fatal(err)
		}
		return &pair
	}
	other, err := NewAuthority(t.TempDir(), "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	forged, err := other.Issue(t.TempDir(), "forged", Subject{User: "admin", Groups: []string{"system:masters"}})
	if err != nil {
		t.Fatal(err)
	}
	who := map[string]caller{
		"nobody":     {},
		"admin":      {pair: certificate("c-admin", Subject{User: "admin", Groups: []string{"system:masters"}})},
		"API server": {pair: &c.PKI.KubeletClient},
		"reader":     {pair: certificate("c-reader", Subject{User: "reader"})},
		"node":       {pair: certificate("c-node", nodeSubject(env.NodeName))},
		"forged":     {pair: &forged},
		"scraper":    {token: strings.TrimSpace(c.Kubectl(t, "create", "token", "default", "-n", "kube-public"))},
		"pod":        {token: strings.TrimSpace(c.Kubectl(t, "create", "token", "default", "-n", "default"))},
		"garbage":    {token: "garbage"},
	}
	logs := "/containerLogs/default/talker-node/main"
	exec := "/exec/default/talker-node/main?command=id&output=1"
	webSocket := []string{
		"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key",
		"dGhlIHNhbXBsZSBub25jZQ==",
		"Sec-WebSocket-Protocol", "v4.channel.k8s.io",
	}
	for _, tc := range []struct {
		who, path string
		headers   []string
		code      int
		want      string
	}{
		{"nobody", "/healthz", nil, 401, "Unauthorized"},
		{"forged", "/pods", nil, 401, "Unauthorized"},
		{"garbage", "/metrics", nil, 401, "Unauthorized"},
		{"admin", "/pods", nil, 200, `"name":"talker-node"`},
		{"API server", logs, nil, 200, "hello\n"},
		{"reader", logs, nil, 200, "hello\n"},
		{"reader", "/metrics", nil, 200, "kubelet_node_name"},
		{
			"reader", exec, webSocket, 403,
			"Forbidden (user=reader, verb=create, resource=nodes, subresource(s)=[proxy])\n",
		},
		{"API server", exec, webSocket, 101, ""},
		{
			"node", "/pods", nil, 403,
			"Forbidden (user=system:node:node, verb=get, resource=nodes, subresource(s)=[pods proxy])\n",
		},
		{"scraper", "/metrics", nil, 200, "kubelet_node_name"},
		{"scraper", "/metrics/resource", nil, 200, ""},
		{
			"scraper", "/pods", nil, 403,
			"Forbidden (user=system:serviceaccount:kube-public:default, verb=get, resource=nodes, " +
				"subresource(s)=[pods proxy])\n",
		},
		{
			"pod", "/metrics", nil, 403,
			"Forbidden (user=system:serviceaccount:default:default, verb=get, resource=nodes, " +
				"subresource(s)=[metrics])\n",
		},
		{"admin", "/berth/v1/pods", nil, 404, ""},
	} {
		caller := who[tc.who]
		caller.c = c
		method := http.MethodGet
		code, body := caller.do(t, method, tc.path, tc.headers...)
		if code != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s: %d %.300q, want %d %q", tc.who, tc.path, code, body, tc.code, tc.want)
		}
	}

	// The API server's answers hold for a while after it is gone. What it has not answered is
	// refused.
	if err := c.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	reader := who["reader"]
	reader.c = c
	if code, body := reader.do(t, http.MethodGet, logs); code != 200 {
		t.Errorf("logs without an API server: %d %s", code, body)
	}
	if code, body := reader.do(t, http.MethodGet, "/stats/summary"); code != 500 ||
		!strings.HasPrefix(body, "Authorization error (user=reader, verb=get") {
		t.Errorf("an unknown right without an API server: %d %q", code, body)
	}
	c.StartAPIServer(t)
	if code, body := reader.do(t, http.MethodGet, "/stats/summary"); code != 200 {
		t.Errorf("and with one again: %d %s", code, body)
	}
}

// TestNodeProxy checks that the API server reaches the agent as it reaches a kubelet.
func TestNodeProxy(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	a.WriteManifest(t, "talker.yaml", talker)
	a.WaitReady(t, "talker")
	c.WaitNodeReady(t)
	path := "/api/v1/nodes/" + env.NodeName + "/proxy"
	for sub, want := range map[string]string{
		"/healthz": "ok", "/pods": "talker-node", "/containerLogs/default/talker-node/main": "hello\n",
		"/configz": "kubeletconfig", "/metrics": "kubelet_node_name",
	} {
		if out := c.Kubectl(t, "get", "--raw", path+sub); !strings.Contains(out, want) {
			t.Errorf("%s: %.300q, want %q", sub, out, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, errOut, err := c.TryKubectl(ctx, "", "get", "--raw", path+"/berth/v1/pods"); ExitCode(err) != 1 ||
		!strings.Contains(errOut, "berth/v1/pods") {
		t.Errorf("berth's own API: %v %s", err, errOut)
	}
}

// announce makes the node's object, for a cluster without an agent.
func (c *Cluster) announce(t *testing.T) {
	t.Helper()
	c.Apply(t,
		fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}, status: {addresses: [{type: InternalIP, "+
			"address: %s}]}}", env.NodeName, env.HostIP))
}
