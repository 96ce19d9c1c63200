//go:build cluster

package test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSecurity shows that the server holds against what users, nodes and strangers may try. Its
// parts share one server. The classes are those of the project's list of vulnerabilities.
func TestSecurity(t *testing.T) {
	s := start(t)
	s.eventually(t, "default", "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *server)
	}{
		{"audiences", audiences},
		{"debug endpoints (class 9)", debugEndpoints},
		{"bodies (class 9)", bodies},
		{"upgrades and redirects (class 12)", upgrades},
		{"addresses of nodes (class 13)", nodeAddresses},
		{"rights of nodes (class 16)", nodesAreRestricted},
		{"mountable secrets (class 18)", mountableSecrets},
		{"TLS (class 30)", transport},
		{"certificate requests (class 30)", certificateRequests},
		{"pod security", restricted},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s) })
	}
}

// forbids fails the test unless kubectl, as that user, is told that it may not.
func (s *server) forbids(t *testing.T, user, stdin string, args ...string) {
	t.Helper()
	if out, err := s.as(user, stdin, args...); err == nil || !strings.Contains(strings.ToLower(err.Error()), "forbidden") {
		t.Errorf("as %s, kubectl %s: %v %s; want it forbidden", user, strings.Join(args, " "), err, out)
	}
}

// ask makes a request and returns the answer's code and body.
func (s *server) ask(t *testing.T, method, path, token, kind string, body io.Reader) (code int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", kind)
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // the test is not of that
	}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	out, _ := io.ReadAll(answer.Body)
	return answer.StatusCode, string(out)
}

// audiences: a token for one audience fails at another.
func audiences(t *testing.T, s *server) {
	vault := s.kubectl(t, "create", "token", "default", "--audience=vault")
	if code, text := s.ask(t, http.MethodGet, "/api", vault, "", nil); code != http.StatusUnauthorized {
		t.Errorf("a token for another audience at the API: %d %s", code, text)
	}
	own := s.kubectl(t, "create", "token", "default")
	if code, text := s.ask(t, http.MethodGet, "/api", own, "", nil); code != http.StatusOK {
		t.Errorf("a token for the API: %d %s", code, text)
	}
	for _, c := range []struct {
		token, audience string
		want            bool
	}{{vault, "vault", true}, {own, "vault", false}, {vault, "", false}, {own, "", true}} {
		spec := authenticationv1.TokenReviewSpec{Token: c.token}
		if c.audience != "" {
			spec.Audiences = []string{c.audience}
		}
		review, err := s.client(t).AuthenticationV1().TokenReviews().Create(t.Context(),
			&authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || review.Status.Authenticated != c.want {
			t.Errorf("a review for the audience %q: %+v, %v; want %t", c.audience, review.Status, err, c.want)
		}
	}
}

// debugEndpoints: nothing that helps with debugging answers without a right.
func debugEndpoints(t *testing.T, s *server) {
	token := s.kubectl(t, "create", "token", "default")
	for _, path := range []string{
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/profile", "/debug/flags/v", "/configz", "/flagz", "/statusz",
		"/metrics", "/metrics/slis", "/logs/", "/debug/api_priority_and_fairness/dump_requests",
	} {
		if code, text, err := s.get(path); err != nil || code != http.StatusUnauthorized {
			t.Errorf("%s for a stranger: %d %.100s, %v", path, code, text, err)
		}
		if code, text := s.ask(t, http.MethodGet, path, token, "", nil); code != http.StatusForbidden {
			t.Errorf("%s for a ServiceAccount: %d %.100s", path, code, text)
		}
	}
	if code, text := s.ask(t, http.MethodPut, "/debug/flags/v", token, "", strings.NewReader("10")); code !=
		http.StatusForbidden {
		t.Errorf("a ServiceAccount sets the log's verbosity: %d %s", code, text)
	}
}

// bodies: what a user sends is limited before it is read, decoded or stored.
func bodies(t *testing.T, s *server) {
	s.kubectl(t, "create", "clusterrolebinding", "writer", "--clusterrole=edit", "--serviceaccount=default:default")
	token := s.kubectl(t, "create", "token", "default")
	const path = "/api/v1/namespaces/default/configmaps"
	s.await(t, "the right is known", func() error {
		if code, text := s.ask(t, http.MethodGet, path, token, "", nil); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
	big := `{"metadata":{"name":"big"},"data":{"k":"` + strings.Repeat("x", 4<<20) + `"}}`
	if code, text := s.ask(t, http.MethodPost, path, token, "application/json", strings.NewReader(big)); code !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("a body of 4 MiB: %d %.200s", code, text)
	}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1,
			c-1, c-1, c-1)
	}
	nested := strings.Repeat("[", 1<<20)
	for name, body := range map[string][2]string{
		"a bomb of YAML": {"application/yaml", bomb}, "a million brackets": {"application/json", nested},
		"a patch of a million brackets": {"application/merge-patch+json", nested},
	} {
		method, target := http.MethodPost, path
		if strings.Contains(name, "patch") {
			method, target = http.MethodPatch, path+"/kube-root-ca.crt"
		}
		code, text := s.ask(t, method, target, token, body[0], strings.NewReader(body[1]))
		if code < http.StatusBadRequest || code >= http.StatusInternalServerError {
			t.Errorf("%s: %d %.200s", name, code, text)
		}
	}
	s.kubectl(t, "get", "--raw", "/readyz")
}

// nodesAreRestricted: a node's agent changes neither its rights nor what the scheduler goes by.
func nodesAreRestricted(t *testing.T, s *server) {
	s.apply(t, strings.ReplaceAll(nodeManifest, "NAME", nodeName)+"---"+strings.ReplaceAll(nodeManifest, "NAME", "other"))
	s.kubectl(t, "create", "secret", "generic", "theirs", "--from-literal=k=v")
	defer s.kubectl(t, "delete", "node", nodeName, "other")
	pod := strings.ReplaceAll(podManifest, "NAME", "mirrored")
	mirror := strings.Replace(pod, "name: mirrored", "name: mirrored, annotations: {kubernetes.io/config.mirror: x}", 1)
	for name, manifest := range map[string]string{
		"a pod that is no mirror":   pod + "  nodeName: " + nodeName + "\n",
		"a mirror for another node": mirror + "  nodeName: other\n",
		"a mirror with a Secret": mirror + "  nodeName: " + nodeName +
			"\n  volumes: [{name: v, secret: {secretName: theirs}}]\n",
		"a mirror with an account":   mirror + "  nodeName: " + nodeName + "\n  serviceAccountName: default\n",
		"a mirror without its owner": mirror + "  nodeName: " + nodeName + "\n",
		"a mirror with a claim": mirror + "  nodeName: " + nodeName +
			"\n  resourceClaims: [{name: r, resourceClaimName: r}]\n",
		"another node": strings.ReplaceAll(nodeManifest, "NAME", "third"),
	} {
		if out, err := s.as("node", manifest, "create", "-f", "-"); err == nil ||
			!strings.Contains(err.Error(), "orbidden") {
			t.Errorf("as the node, %s: %v %s", name, err, out)
		}
	}
	for _, args := range [][]string{
		{"taint", "node", nodeName, "k=v:NoSchedule"},
		{"label", "node", nodeName, "node-restriction.kubernetes.io/trusted=yes"},
		{"label", "node", nodeName, "node-role.kubernetes.io/control-plane="},
		{"patch", "node", nodeName, "--type=merge", "-p", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node",` +
			`"name":"other","uid":"1"}]}}`},
		{"patch", "node", "other", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Running"}}`},
		{"delete", "node", nodeName},
		{"create", "token", "default"},
		{"get", "secret", "theirs"},
		{"auth", "can-i", "get", "pods", "--as", "kubernetes-admin"},
	} {
		s.forbids(t, "node", "", args...)
	}
}

// mountableSecrets: a ServiceAccount that is limited to its own Secrets is so for every kind of
// container and of reference.
func mountableSecrets(t *testing.T, s *server) {
	s.kubectl(t, "create", "secret", "generic", "unlisted", "--from-literal=k=v")
	s.apply(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: limited, annotations: "+
		`{kubernetes.io/enforce-mountable-secrets: "true"}}}`)
	pod := strings.ReplaceAll(podManifest, "NAME", "limited") + "  serviceAccountName: limited\n"
	const image = "image: registry.example/image:1"
	for name, change := range map[string][2]string{
		"volume": {
			"serviceAccountName", "volumes: [{name: v, secret: {secretName: unlisted}}]\n  serviceAccountName",
		},
		"envFrom":           {image, image + ", envFrom: [{secretRef: {name: unlisted}}]"},
		"env":               {image, image + ", env: [{name: E, valueFrom: {secretKeyRef: {name: unlisted, key: k}}}]"},
		"image pull secret": {"serviceAccountName", "imagePullSecrets: [{name: unlisted}]\n  serviceAccountName"},
		"init container": {
			"serviceAccountName",
			"initContainers: [{name: i, " + image + ", envFrom: [{secretRef: {name: unlisted}}]}]\n  serviceAccountName",
		},
	} {
		s.refuses(t, "does not reference that", strings.Replace(pod, change[0], change[1], 1), "create", "-f", "-")
		if t.Failed() {
			t.Logf("that was: %s", name)
		}
	}
	s.apply(t, pod)
	s.refuses(t, "does not reference that", "", "patch", "pod", "limited", "--subresource=ephemeralcontainers", "-p",
		`{"spec":{"ephemeralContainers":[{"name":"e","image":"registry.example/image:1",`+
			`"envFrom":[{"secretRef":{"name":"unlisted"}}]}]}}`)
	s.kubectl(t, "delete", "pod", "limited", "--force")
}

// transport: clients speak TLS 1.2 or later, with a key that is made here and a certificate that
// ends within a year.
func transport(t *testing.T, s *server) {
	address := strings.TrimPrefix(s.url, "https://")
	old := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}
	if c, err := tls.Dial("tcp", address, old); err == nil {
		c.Close()
		t.Error("it speaks TLS 1.1")
	}
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cert := c.ConnectionState().PeerCertificates[0]
	if _, ok := cert.PublicKey.(*ecdsa.PublicKey); !ok || cert.NotAfter.Sub(cert.NotBefore) > 367*24*time.Hour ||
		cert.Issuer.String() == cert.Subject.String() {
		t.Errorf("its certificate has the key %T, is of %s and valid from %s to %s", cert.PublicKey, cert.Issuer,
			cert.NotBefore, cert.NotAfter)
	}
	config, err := os.ReadFile(s.file("node.kubeconfig"))
	if err != nil || !bytes.Contains(config, []byte("certificate-authority-data:")) ||
		bytes.Contains(config, []byte("insecure-skip-tls-verify")) {
		t.Errorf("the node's kubeconfig does not pin the authority: %v", err)
	}
}

// restricted: the level restricted refuses what it should, whatever container asks for it.
func restricted(t *testing.T, s *server) {
	s.apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: tight, labels: {pod-security.kubernetes.io/enforce: "+
		"restricted}}}")
	s.eventually(t, "default", "-n", "tight", "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	const good = `, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}`
	pod := strings.Replace(strings.ReplaceAll(podManifest, "NAME", "tight"), "image:1}", "image:1"+good, 1) +
		"  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}\n"
	for _, change := range [][2]string{
		{"allowPrivilegeEscalation: false", "privileged: true"},
		{"allowPrivilegeEscalation: false", "allowPrivilegeEscalation: true"},
		{"drop: [ALL]", "add: [NET_ADMIN]"},
		{"runAsNonRoot: true", "runAsUser: 0"},
		{"seccompProfile: {type: RuntimeDefault}", "seccompProfile: {type: Unconfined}"},
		{"containers:", "hostNetwork: true\n  containers:"},
		{"containers:", "hostPID: true\n  containers:"},
		{"containers:", "volumes: [{name: v, hostPath: {path: /}}]\n  containers:"},
		{"containers:", "initContainers: [{name: i, image: registry.example/image:1}]\n  containers:"},
	} {
		bad := strings.Replace(pod, change[0], change[1], 1)
		s.refuses(t, "violates PodSecurity", bad, "-n", "tight", "create", "-f", "-")
	}
	if _, err := s.as("admin", pod, "-n", "tight", "create", "-f", "-"); err != nil {
		t.Errorf("a pod that keeps to it: %v", err)
	}
	s.refuses(t, "violates PodSecurity", "", "-n", "tight", "debug", "tight", "--image=registry.example/image:1",
		"--profile=sysadmin", "--attach=false")
}
