//go:build cluster

package cluster

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/berthd/berth/test/env"
)

// accounts are two service accounts, of which one is for a plugin, the node's right to ask for
// tokens for the plugin's audience, and a pod of each account. Nothing serves the pods' images.
const accounts = `apiVersion: v1
kind: ServiceAccount
metadata: {name: puller, annotations: {example.com/role: reader, other: kept}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: plain}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: pull-audience}
rules: [{apiGroups: [""], resources: [registry], verbs: [request-serviceaccounts-token-audience]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: pull-audience}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: pull-audience}
subjects: [{kind: Group, name: system:nodes, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {serviceAccountName: plain, containers: [{name: main, image: "127.0.0.1:1/team/plain:v1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: puller}
spec: {serviceAccountName: puller, containers: [{name: main, image: "127.0.0.1:1/team/puller:v1"}]}
`

// TestPullTokens checks that a credential provider plugin with tokenAttributes gets a token of the
// service account whose pod needs an image, and the annotations that it asks for. It is not asked
// for an account without the required annotation. The node may read the accounts of its pods.
func TestPullTokens(t *testing.T) {
	c := Start(t, Options{})
	bin := t.TempDir()
	asked := filepath.Join(bin, "asked")
	for file, text := range map[string]string{
		"provider": "#!/bin/sh\ncat >> " + asked + "\n" +
			`echo '{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", ` +
			`"cacheKeyType": "Registry", "auth": {}}'` + "\n",
		"providers.yaml": `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: provider
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["127.0.0.1:1/team"]
  defaultCacheDuration: 1h
  tokenAttributes:
    serviceAccountTokenAudience: registry
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/role]
`,
	} {
		if err := os.WriteFile(filepath.Join(bin, file), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	a := c.StartNode(t, env.AgentOptions{Flags: []string{
		"--image-credential-provider-config", filepath.Join(bin, "providers.yaml"),
		"--image-credential-provider-bin-dir", bin,
	}})
	c.WaitNodeReady(t)
	c.Apply(t, accounts)
	for _, pod := range []string{"plain", "puller"} {
		c.Eventually(t, func(out string) error {
			if out != "ErrImagePull" && out != "ImagePullBackOff" {
				return fmt.Errorf("the pod waits because of %q", out)
			}
			return nil
		}, "get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].state.waiting.reason}")
	}
	data, err := os.ReadFile(asked)
	if err != nil {
		t.Fatal(err)
	}
	var request credentialproviderv1.CredentialProviderRequest
	if err := json.Unmarshal(data, &request); err != nil { // it is one request: its answer is cached
		t.Fatalf("the plugin was asked %d bytes: %v", len(data), err)
	}
	if request.Image != "127.0.0.1:1/team/puller" {
		t.Errorf("the plugin was asked for %s", request.Image)
	}
	if given := fmt.Sprint(request.ServiceAccountAnnotations); given != "map[example.com/role:reader]" {
		t.Errorf("the plugin has the annotations %s", given)
	}
	if err := checkPullToken(request.ServiceAccountToken); err != nil {
		t.Errorf("the plugin's token: %v", err)
	}
	if log, err := os.ReadFile(a.Log); err != nil || strings.Contains(string(log), request.ServiceAccountToken) {
		t.Errorf("the agent's log has the token, or cannot be read: %v", err)
	}
}

// checkPullToken checks for whom and of whom a token is.
func checkPullToken(token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("it is no JWT")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	var claims struct {
		Audience []string `json:"aud"`
		Subject  string   `json:"sub"`
		Bound    struct {
			Pod struct {
				Name string `json:"name"`
			} `json:"pod"`
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(text, &claims); err != nil {
		return err
	}
	got := fmt.Sprintf("%v of %s for pod %s", claims.Audience, claims.Subject, claims.Bound.Pod.Name)
	if want := "[registry] of system:serviceaccount:default:puller for pod puller"; got != want {
		return fmt.Errorf("it is %s, want %s", got, want)
	}
	return nil
}
