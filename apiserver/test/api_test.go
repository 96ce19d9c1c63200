//go:build cluster

package test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServer shows what a server does with its default settings. Its parts share one server.
func TestServer(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("secret-token,robot,1,\"system:masters\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := start(t, "--token-auth-file", tokens)
	for name, part := range map[string]func(*testing.T, *server){
		"first start": firstStart, "anonymous": anonymous, "tokens": usersWithTokens, "objects": objects,
		"scheduling": scheduling, "node": nodeRights, "pod security": podSecurity, "no workloads": noWorkloads,
		"garbage": garbage, "documents": documents, "queues": queues, "replicas": replicas, "budgets": budgets,
		"ranges of Services": serviceRanges, "components": components, "quiet start": quietStart,
	} {
		t.Run(name, func(t *testing.T) { part(t, s) })
	}
	before, err := os.ReadFile(s.file("admin.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	s.stop(t)
	s.start(t)
	if after, err := os.ReadFile(s.file("admin.kubeconfig")); err != nil || string(after) != string(before) {
		t.Errorf("a restart changes the kubeconfig: %v", err)
	}
	s.kubectl(t, "get", "namespaces")
}

func firstStart(t *testing.T, s *server) {
	for _, name := range []string{"admin.kubeconfig", "node.kubeconfig", "pki/ca.crt", "pki/ca.key", "etcd"} {
		if _, err := os.Stat(s.file(name)); err != nil {
			t.Error(err)
		}
	}
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSocket == 0 && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: others may use it: %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func anonymous(t *testing.T, s *server) {
	for path, want := range map[string]int{
		"/healthz": http.StatusOK, "/livez": http.StatusOK, "/readyz": http.StatusOK, "/version": http.StatusOK,
		"/api": http.StatusUnauthorized, "/api/v1/namespaces": http.StatusUnauthorized,
		"/api/v1/secrets": http.StatusUnauthorized, "/metrics": http.StatusUnauthorized,
		"/openapi/v2": http.StatusUnauthorized, "/readyz/ping": http.StatusUnauthorized,
	} {
		if code, body, err := s.get(path); err != nil || code != want {
			t.Errorf("%s: %d %q, %v; want %d", path, code, body, err, want)
		}
	}
}

// queues checks that the queues of the controllers have metrics, and no timers.
func queues(t *testing.T, s *server) {
	s.await(t, "no queue has a timer", func() error {
		stacks, err := s.as("admin", "", "get", "--raw", "/debug/pprof/goroutine?debug=1")
		if n := strings.Count(stacks, "updateUnfinishedWorkLoop"); n > 0 {
			return fmt.Errorf("%d groups of goroutines are timers of queues", n)
		}
		return err
	})
	if !strings.Contains(s.kubectl(t, "get", "--raw", "/metrics"), "workqueue_adds_total{name=\"namespace\"}") {
		t.Error("the queue of namespaces has no metrics")
	}
}

func usersWithTokens(t *testing.T, s *server) {
	if err := os.WriteFile(s.file("none.kubeconfig"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	noKey := []string{"--server", s.url, "--certificate-authority", s.file("pki/ca.crt")}
	whoami := func(token string) (string, error) {
		return s.as("none", "", append(noKey, "--token", token, "auth", "whoami", "-o",
			"jsonpath={.status.userInfo.username}")...)
	}
	if got, err := whoami("secret-token"); err != nil || got != "robot" {
		t.Errorf("the token of the file: %q, %v", got, err)
	}
	s.await(t, "there is a ServiceAccount", func() error {
		_, err := s.as("admin", "", "get", "serviceaccount", "default")
		return err
	})
	token := s.kubectl(t, "create", "token", "default")
	if got, err := whoami(token); err != nil || got != "system:serviceaccount:default:default" {
		t.Errorf("the token of the ServiceAccount: %q, %v", got, err)
	}
	_, err := s.as("none", "", append(noKey, "--token", token, "get", "secrets")...)
	if err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("a ServiceAccount without rights reads Secrets: %v", err)
	}
	if got, err := whoami("wrong"); err == nil {
		t.Errorf("a wrong token is %q", got)
	}
}

func objects(t *testing.T, s *server) {
	s.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: objects}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: objects}
data: {k: v}
---
apiVersion: v1
kind: Secret
metadata: {name: s, namespace: objects}
stringData: {k: hidden}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: objects}
spec: {selector: {app: web}, ports: [{port: 80}]}
`)
	if got := s.kubectl(t, "-n", "objects", "get", "configmap", "c", "-o", "jsonpath={.data.k}"); got != "v" {
		t.Errorf("the ConfigMap has %q", got)
	}
	ip := s.kubectl(t, "-n", "objects", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	if !strings.HasPrefix(ip, "10.96.") {
		t.Errorf("the Service has the address %q", ip)
	}
	s.eventually(t, "kube-root-ca.crt", "-n", "objects", "get", "configmap", "kube-root-ca.crt", "-o",
		"jsonpath={.metadata.name}")
	s.kubectl(t, "explain", "pod.spec.containers")
	s.kubectl(t, "delete", "namespace", "objects", "--wait")
	if _, err := s.as("admin", "", "-n", "objects", "get", "secret", "s"); err == nil {
		t.Error("the Secret of a deleted namespace is there")
	}
}

// nodeManifest is a Node as an agent registers it.
const nodeManifest = `
apiVersion: v1
kind: Node
metadata: {name: NAME, labels: {kubernetes.io/hostname: NAME}}
`

// register makes a Node that is ready, without an agent.
func register(t testing.TB, s *server, name string) {
	t.Helper()
	s.apply(t, strings.ReplaceAll(nodeManifest, "NAME", name))
	s.kubectl(t, "patch", "node", name, "--subresource", "status", "--type", "merge", "-p", `{"status":{
		"capacity":{"cpu":"4","memory":"8Gi","pods":"110"},"allocatable":{"cpu":"4","memory":"8Gi","pods":"110"},
		"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","message":"it is ready"}]}}`)
}

// podManifest is a pod of the namespace default. It tolerates that nobody renews the node's Lease,
// which a slow test would notice.
const podManifest = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  terminationGracePeriodSeconds: 0
  tolerations:
    - {key: node.kubernetes.io/not-ready, operator: Exists}
    - {key: node.kubernetes.io/unreachable, operator: Exists}
  containers: [{name: c, image: registry.example/image:1}]
`

func scheduling(t *testing.T, s *server) {
	register(t, s, "scheduled")
	defer s.kubectl(t, "delete", "node", "scheduled")
	s.await(t, "the namespace takes pods", func() error {
		_, err := s.as("admin", strings.ReplaceAll(podManifest, "NAME", "p"), "apply", "-f", "-")
		return err
	})
	s.eventually(t, "scheduled", "get", "pod", "p", "-o", "jsonpath={.spec.nodeName}")
	s.kubectl(t, "delete", "pod", "p", "--force")
}

func nodeRights(t *testing.T, s *server) {
	for node, secret := range map[string]string{nodeName: "mine", "other": "theirs"} {
		s.apply(t, strings.ReplaceAll(nodeManifest, "NAME", node))
		s.apply(t, `
apiVersion: v1
kind: Secret
metadata: {name: `+secret+`}
---
apiVersion: v1
kind: Pod
metadata: {name: on-`+node+`}
spec:
  nodeName: `+node+`
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: registry.example/image:1}]
  volumes: [{name: v, secret: {secretName: `+secret+`}}]
`)
	}
	s.await(t, "the node may read the Secret of its pod", func() error {
		_, err := s.as("node", "", "get", "secret", "mine")
		return err
	})
	s.kubectl(t, "get", "secret", "theirs")
	for _, args := range [][]string{
		{"get", "secret", "theirs"},
		{"get", "secrets"},
		{"label", "node", "other", "a=b"},
		{"delete", "pod", "on-other"},
		{"create", "namespace", "nodes-may-not"},
	} {
		if _, err := s.as("node", "", args...); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("as the node, kubectl %s: %v", strings.Join(args, " "), err)
		}
	}
	s.kubectl(t, "delete", "pod", "on-"+nodeName, "on-other", "--force")
	s.kubectl(t, "delete", "node", nodeName, "other")
}

func podSecurity(t *testing.T, s *server) {
	s.apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: strict, labels: {pod-security.kubernetes.io/enforce: restricted}}
`)
	privileged := strings.Replace(podManifest, "image:1}", "image:1, securityContext: {privileged: true}}", 1)
	s.await(t, "PodSecurity refuses", func() error {
		_, err := s.as("admin", strings.ReplaceAll(privileged, "NAME", "bad"), "-n", "strict", "apply", "-f", "-")
		if err == nil {
			t.Fatal("a privileged pod is accepted")
		}
		if !strings.Contains(err.Error(), "violates PodSecurity") { // no ServiceAccount yet
			return err
		}
		return nil
	})
}

func noWorkloads(t *testing.T, s *server) {
	if out := s.kubectl(t, "api-resources", "-o", "name"); strings.Contains(out, "apps") ||
		strings.Contains(out, "batch") {
		t.Errorf("it serves workloads: %s", out)
	}
}

func garbage(t *testing.T, s *server) {
	s.kubectl(t, "create", "configmap", "owner")
	uid := s.kubectl(t, "get", "configmap", "owner", "-o", "jsonpath={.metadata.uid}")
	s.apply(t, `
apiVersion: v1
kind: ConfigMap
metadata:
  name: dependent
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: `+uid+`}]
`)
	s.kubectl(t, "delete", "configmap", "owner")
	s.eventually(t, "", "get", "configmap", "dependent", "--ignore-not-found")
}

// documents shows that /openapi/v3 lists the groups that are served, and has each group's document
// under the hash in the list.
func documents(t *testing.T, s *server) {
	list := struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}{}
	if err := json.Unmarshal([]byte(s.kubectl(t, "get", "--raw", "/openapi/v3")), &list); err != nil {
		t.Fatal(err)
	}
	for _, group := range []string{"api/v1", "apis/rbac.authorization.k8s.io/v1", "apis/apiregistration.k8s.io/v1"} {
		url := list.Paths[group].ServerRelativeURL
		if !strings.Contains(url, "?hash=") {
			t.Errorf("%s is at %q", group, url)
			continue
		}
		document := s.kubectl(t, "get", "--raw", url)
		if !strings.Contains(document, `"openapi":"3.0.0"`) || !strings.Contains(document, "/"+group+"/") {
			t.Errorf("the document of %s is %.300s", group, document)
		}
	}
	if _, served := list.Paths["apis/apps/v1"]; served {
		t.Error("it lists a group that it does not serve")
	}
	if out, err := s.as("admin", "", "get", "--raw", "/openapi/v3/apis/nobody/v1"); err == nil {
		t.Errorf("the document of nobody: %.300s", out)
	}
}
