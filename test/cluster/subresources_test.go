//go:build cluster

package cluster

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// oneRight is a user who may read, make and change one subresource of nodes.
const oneRight = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: only-%[1]s}
rules: [{apiGroups: [""], resources: [nodes/%[1]s], verbs: [get, create, update]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: only-%[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: only-%[1]s}
subjects: [{kind: User, name: only-%[1]s, apiGroup: rbac.authorization.k8s.io}]
---
`

// TestFineGrainedRights checks every path of the port with a user for each subresource of nodes:
// who may use the path, who may not, and what it answers. The rights are those of KEP-2862.
func TestFineGrainedRights(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{Kubelet: "enableSystemLogQuery: true\n"})
	a.WriteManifest(t, "talker.yaml", talker)
	a.WaitReady(t, "talker")
	c.WaitNodeReady(t)
	users, roles := map[string]caller{}, ""
	for _, sub := range []string{
		"proxy", "pods", "healthz", "configz", "stats", "metrics", "log", "checkpoint", "statusz",
	} {
		pair, err := c.PKI.CA.Issue(c.Folder, "only-"+sub, Subject{User: "only-" + sub})
		if err != nil {
			t.Fatal(err)
		}
		users[sub] = caller{c: c, pair: &pair}
		roles += fmt.Sprintf(oneRight, sub)
	}
	c.Apply(t, roles)
	for sub := range users {
		c.may(t, "only-"+sub, sub)
	}
	const talks = "/default/talker-" + env.NodeName + "/main"
	for _, tc := range []struct {
		method, path, may string
		code              int
		want              string
	}{
		{"GET", "/healthz", "healthz proxy", 200, "ok"},
		{"GET", "/healthz/syncloop?verbose", "healthz proxy", 200, "[+]syncloop ok"},
		{"GET", "/pods", "pods proxy", 200, `"name":"talker-node"`},
		{"GET", "/runningpods/", "pods proxy", 200, `"name":"talker-node"`},
		{"GET", "/configz", "configz proxy", 200, `"enableSystemLogQuery":true`},
		{"GET", "/flagz", "configz", 200, "hostname-override=" + env.NodeName},
		{"GET", "/statusz", "statusz", 200, "Paths: /attach /checkpoint /configz"},
		{"GET", "/stats/summary", "stats", 200, `"nodeName":"node"`},
		{"GET", "/metrics", "metrics", 200, "kubelet_node_name"},
		{"GET", "/metrics/cadvisor", "metrics", 200, "machine_cpu_cores"},
		{"GET", "/metrics/resource", "metrics", 200, "node_memory_working_set_bytes"},
		{"GET", "/metrics/probes", "metrics", 200, ""},
		{"GET", "/metrics/slis", "metrics", 200, "kubernetes_healthcheck"},
		{"GET", "/logs/", "log", 200, "<pre>"},
		{"GET", "/logs/?query=berth-has-no-such-service", "log", 200, "no log of berth-has-no-such-service"},
		{"GET", "/logs/?query=/../etc/shadow", "log", 400, "query"},
		{"POST", "/checkpoint" + talks, "checkpoint", 500, "checkpointing of default/talker-node/main failed"},
		{"GET", "/containerLogs" + talks, "proxy", 200, "hello\n"},
		{"POST", "/run" + talks + "?cmd=echo+there", "proxy", 200, "there\n"},
		{"GET", "/exec" + talks + "?command=id&output=1", "proxy", 400, "Upgrade request required"},
		{"POST", "/attach" + talks + "?output=1", "proxy", 400, "Upgrade request required"},
		{"POST", "/portForward/default/talker-" + env.NodeName, "proxy", 400, "Upgrade request required"},
		{"GET", "/debug/pprof/cmdline", "proxy", 200, "berth"},
		{"PUT", "/debug/flags/v", "proxy", 400, "must be a number"},
		{"GET", "/nope", "proxy", 404, ""},
	} {
		may := strings.Fields(tc.may)
		for _, sub := range slices.Sorted(maps.Keys(users)) {
			code, body := users[sub].do(t, tc.method, tc.path)
			switch {
			case !slices.Contains(may, sub):
				if code != http.StatusForbidden || !strings.HasPrefix(body, "Forbidden (user=only-"+sub) {
					t.Errorf("%s %s with nodes/%s: %d %.200s, want it refused", tc.method, tc.path, sub, code, body)
				}
			case code != tc.code || !strings.Contains(body, tc.want):
				t.Errorf("%s %s with nodes/%s: %d %.300s, want %d %q", tc.method, tc.path, sub, code, body, tc.code,
					tc.want)
			}
		}
	}

	// The same through the API server, as kubectl asks.
	for sub, want := range map[string]string{
		"/logs/?query=berth-has-no-such-service": "no log of", "/configz": "kubeletconfig", "/flagz": "kubelet flagz",
		"/healthz/ping": "ok",
	} {
		if out := c.Kubectl(t, "get", "--raw", "/api/v1/nodes/"+env.NodeName+"/proxy"+sub); !strings.Contains(out,
			want) {
			t.Errorf("%s: %.300q, want %q", sub, out, want)
		}
	}
}
