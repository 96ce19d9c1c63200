//go:build cluster

package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// bootstrapping is what kubeadm sets up for nodes that have a token and no certificate.
const bootstrapping = `apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bootstrap}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-bootstrapper}
subjects: [{kind: Group, name: system:bootstrappers, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approve-first}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole,
  name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"}
subjects: [{kind: Group, name: system:bootstrappers, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: approve-next}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole,
  name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"}
subjects: [{kind: Group, name: system:nodes, apiGroup: rbac.authorization.k8s.io}]
`

// TestBootstrap checks a node that starts with a token. It gets its client certificate and renews
// it, and serves with a certificate that the cluster signed. Certificates last for a minute, so
// renewals come within half a minute: the controller manager dates certificates back by five
// minutes, so 70 to 90 % of six minutes are over by then.
func TestBootstrap(t *testing.T) {
	c := Start(t, Options{ControllerManager: []string{"--cluster-signing-duration", "60s"}})
	c.Apply(t, bootstrapping)
	bootstrap := filepath.Join(c.Folder, "bootstrap.conf")
	if err := WriteKubeconfig(bootstrap, Server, c.PKI.CA.File, map[string]any{
		"token": "abcdef.0123456789abcdef",
	}); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(c.Folder, "kubelet.conf")
	a := c.StartNode(t, env.AgentOptions{
		Kubelet: "rotateCertificates: true\nserverTLSBootstrap: true\n",
		Flags:   []string{"--bootstrap-kubeconfig", bootstrap, "--kubeconfig", kubeconfig},
	})
	// Static pods do not wait for a certificate.
	a.WriteManifest(t, "talker.yaml", talker)
	a.WaitReady(t, "talker")
	c.WaitNodeReady(t)
	current := filepath.Join(a.RootDir, "pki", "kubelet-client-current.pem")
	if text, err := os.ReadFile(kubeconfig); err != nil ||
		!strings.Contains(string(text), "client-certificate: "+current) || strings.Contains(string(text), "abcdef") {
		t.Errorf("the kubeconfig is (%v)\n%s", err, text)
	}
	first := leafOf(t, current)
	if first.Subject.String() != "CN=system:node:node,O=system:nodes" {
		t.Errorf("the certificate is %s's", first.Subject)
	}

	// Servers' certificates are not approved by themselves. Until somebody approves one, there is
	// no TLS.
	c.Eventually(t, Contains("Pending"), "get", "csr", "--field-selector",
		"spec.signerName=kubernetes.io/kubelet-serving")
	if err := c.handshake(t); err == nil {
		t.Error("it serves without a certificate")
	}
	for _, name := range strings.Fields(c.Kubectl(t, "get", "csr", "--field-selector",
		"spec.signerName=kubernetes.io/kubelet-serving", "-o", "name")) {
		c.Kubectl(t, "certificate", "approve",
			strings.TrimPrefix(name, "certificatesigningrequest.certificates.k8s.io/"))
	}
	env.Eventually(t, "a serving certificate that the cluster has signed", func() error { return c.handshake(t) })

	env.Eventually(t, "another client certificate", func() error {
		if leafOf(t, current).Equal(first) {
			return errors.New("it is the first one")
		}
		return nil
	})
	// The new certificate is in use, also after a restart, when the token is not valid any more.
	c.Kubectl(t, "delete", "secret", "bootstrap-token-abcdef", "-n", "kube-system")
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	c.Apply(t,
		"{apiVersion: v1, kind: Pod, metadata: {name: after}, spec: {terminationGracePeriodSeconds: 0, "+
			"containers: [{name: main, image: berth.local/busybox:v1, command: [sleep, '3600']}]}}")
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/after", "--timeout=180s")
}

// leafOf reads a certificate.
func leafOf(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path) // read once: the next time there may be another certificate
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// handshake connects to the agent's port as a client that trusts only the cluster's authority.
func (c *Cluster) handshake(t *testing.T) error {
	t.Helper()
	conn, err := c.Dial(t.Context(), "tcp", env.HostIP+":10250")
	if err != nil {
		return err
	}
	defer conn.Close()
	pem, err := os.ReadFile(c.PKI.CA.File)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	if err := tls.Client(conn, &tls.Config{
		RootCAs: roots, ServerName: env.HostIP,
	}).HandshakeContext(t.Context()); err != nil {
		return fmt.Errorf("shake hands: %w", err)
	}
	return nil
}
