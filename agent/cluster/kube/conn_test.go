package kube_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster/kube"
)

func TestDialTellsWhatIsWrongWithTheKubeconfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const good = `{apiVersion: v1, kind: Config, current-context: c,
  clusters: [{name: k, cluster: {server: "https://127.0.0.1:1"%s}}],
contexts: [{name: c, context: {cluster: k, user: u}}],
  users: [{name: u, user: {token: t}}]}`
	for _, tc := range []struct{ name, path, want string }{
		{"is not there", filepath.Join(dir, "nothing"), "reading the kubeconfig"},
		{"is no kubeconfig", write("a", "x: ["), "reading the kubeconfig"},
		{
			"names no CA file that is there",
			write("b", strings.ReplaceAll(good, "%s", `, certificate-authority: gone.crt`)), "gone.crt",
		},
		{"is good", write("c", strings.ReplaceAll(good, "%s", "")), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := kube.Dial(kube.Config{Kubeconfig: tc.path})
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// certificate writes a new self-signed client certificate to cert.pem and key.pem in dir.
func certificate(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClientCertificatesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	var who, agent, accept string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, agent, accept = r.TLS.PeerCertificates[0].Subject.CommonName, r.UserAgent(), r.Header.Get("Accept")
		w.WriteHeader(http.StatusNotFound)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert} //nolint:gosec // a test's
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c,
  clusters: [{name: k, cluster: {server: "` + server.URL + `", certificate-authority: ca.pem}}],
contexts: [{name: c, context: {cluster: k, user: u}}],
  users: [{name: u, user: {client-certificate: cert.pem, client-key: key.pem}}]}`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	certificate(t, dir, "first")
	conn, err := kube.Dial(kube.Config{Kubeconfig: config, UserAgent: "berth/test", ContentType: protobuf})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := kube.Pods(conn)
	if err != nil {
		t.Fatal(err)
	}
	ask := func() {
		for range 3 { // a request may still use the connection that was just closed
			if _, err := pods.Get(t.Context(), "ns", "a"); apierrors.IsNotFound(err) {
				return
			}
		}
	}
	ask()
	if want := protobuf + ",application/json"; who != "first" || agent != "berth/test" || accept != want {
		t.Errorf("the server saw %q, %q, %q", who, agent, accept)
	}
	certificate(t, dir, "second")
	// client-go looks at the files at most once a second
	for range time.Tick(100 * time.Millisecond) {
		conn.CloseConnections()
		if ask(); who == "second" {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("the new certificate is not used")
		}
	}
}
