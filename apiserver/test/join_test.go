//go:build cluster

package test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestJoin shows that a token lets a machine become a node and do nothing else, until it expires.
func TestJoin(t *testing.T) {
	s := start(t, "--scheduler=false")
	token := func(args ...string) (string, error) {
		out, err := exec.Command(program, append([]string{"token", "create", "--data-dir", s.dir}, args...)...).Output()
		return string(out), err
	}
	if out, err := token(); err == nil {
		t.Errorf("a token for a server that only this machine reaches: %s", out)
	}
	join := func(name, ttl string) {
		t.Helper()
		out, err := token("--server", s.url, "--ttl", ttl)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.file(name+".kubeconfig"), []byte(out), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	join("join", "1h")
	if out, err := s.as("join", "", "auth", "whoami"); err != nil || !strings.Contains(out, "system:bootstrap:") ||
		!strings.Contains(out, "system:bootstrappers") {
		t.Fatalf("who has the token is %s, %v", out, err)
	}
	for _, args := range [][]string{{"get", "secrets", "-A"}, {"get", "nodes"}, {"get", "pods", "-A"}} {
		s.forbids(t, "join", "", args...)
	}
	s.await(t, "it may ask for a certificate", func() error {
		_, err := s.as("join", certificateRequest(t, "second"), "create", "-f", "-")
		return err
	})
	s.await(t, "it gets the certificate", func() error {
		out, err := s.as("admin", "", "get", "csr", "second", "-o", "jsonpath={.status.certificate}")
		if err == nil && out == "" {
			err = fmt.Errorf("there is none")
		}
		return err
	})

	join("short", "1s")
	s.await(t, "the token has expired", func() error {
		if out, err := s.as("short", "", "auth", "whoami"); err == nil || !strings.Contains(err.Error(), "logged in") {
			return fmt.Errorf("%s, %w", out, err)
		}
		return nil
	})
	s.await(t, "the expired token is removed", func() error {
		out, err := s.as("admin", "", "-n", "kube-system", "get", "secrets", "-o", "name")
		if err == nil && strings.Count(out, "bootstrap-token-") != 1 {
			err = fmt.Errorf("there are %s", out)
		}
		return err
	})
}

// certificateRequest is that of a node's agent for its first certificate.
func certificateRequest(t *testing.T, node string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return fmt.Sprintf("{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: %s}, "+
		"spec: {signerName: kubernetes.io/kube-apiserver-client-kubelet, request: %s, usages: [digital signature, "+
		"client auth]}}", node, base64.StdEncoding.EncodeToString(text))
}
