package env

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/berthd/berth/test/images"
)

// The accounts of a registry with a login.
const (
	RegistryUser      = "alpha-user"
	RegistryPassword  = "swordfish-alpha"
	RegistryUser2     = "omega-user"
	RegistryPassword2 = "swordfish-omega"
)

// accounts is the htpasswd file of these accounts, with bcrypt at its lowest cost.
const accounts = RegistryUser + ":$2b$04$qFFCycd4mgFekXotQt81LuKDiS/H0JKJ7.gwvppS3tESV08UQxlQe\n" + RegistryUser2 +
	":$2b$04$Jxv5L9ThXwtFzFMkQJhSAu937wZrxCU7GPeKdmDBIMlQdBuEfYjfm\n"

// registryProgram is Debian's docker-registry.
const registryProgram = "docker-registry"

// RegistryOptions are the options of a registry.
type RegistryOptions struct {
	// TLS makes the registry serve with a certificate of its own CA, see [Registry.CA].
	TLS bool
	// Login makes the registry require one of the accounts.
	Login bool
}

// Registry is an image registry on loopback.
type Registry struct {
	// Host is "127.0.0.1:port".
	Host string
	// CA is the certificate file of the registry's CA. It is empty without TLS.
	CA string

	dir    string
	opts   RegistryOptions
	client *http.Client
}

// StartRegistry starts a registry for a test. The test stops it.
func StartRegistry(t testing.TB, opts RegistryOptions) *Registry {
	t.Helper()
	r := &Registry{dir: t.TempDir(), opts: opts, client: &http.Client{}}
	config, err := r.prepare()
	if err != nil {
		t.Fatalf("prepare a registry: %v", err)
	}
	program, err := registryBinary()
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(exec.CommandContext(context.Background(), program, "serve", config),
		filepath.Join(r.dir, "log"), func(start func() error) error { return start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.client.CloseIdleConnections()
		p.kill() // the registry keeps nothing that is needed
		if t.Failed() {
			t.Logf("--- the end of the registry's log\n%s", tail(filepath.Join(r.dir, "log")))
		}
	})
	Eventually(t, "the registry to answer", func() error {
		resp, err := r.do(t.Context(), http.MethodGet, "/v2/", "", nil)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
	return r
}

// registryBinary finds the program: the one that "make deps" puts beside containerd, or the host's.
func registryBinary() (string, error) {
	root, err := images.Root()
	if err != nil {
		return "", err
	}
	if own := filepath.Join(root, ".cache", "bin", registryProgram); exists(own) {
		return own, nil
	}
	path, err := exec.LookPath(registryProgram)
	if err != nil {
		return "", fmt.Errorf("find a registry (run \"make deps\"): %w", err)
	}
	return path, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// prepare writes the registry's files and returns the path of its config.
func (r *Registry) prepare() (string, error) {
	port, err := FreePort()
	if err != nil {
		return "", err
	}
	r.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	config := fmt.Sprintf("version: 0.1\nlog: {level: warn}\nstorage: {filesystem: {rootdirectory: %q}}\nhttp:\n"+
		"  addr: %q\n", filepath.Join(r.dir, "data"), r.Host)
	if r.opts.TLS {
		if err := r.certify(); err != nil {
			return "", err
		}
		config += fmt.Sprintf("  tls: {certificate: %q, key: %q}\n", filepath.Join(r.dir, "cert.pem"),
			filepath.Join(r.dir, "key.pem"))
	}
	if r.opts.Login {
		path := filepath.Join(r.dir, "htpasswd")
		if err := os.WriteFile(path, []byte(accounts), 0o600); err != nil {
			return "", err
		}
		config += fmt.Sprintf("auth: {htpasswd: {realm: test, path: %q}}\n", path)
	}
	path := filepath.Join(r.dir, "config.yaml")
	return path, os.WriteFile(path, []byte(config), 0o600)
}

// certify makes a CA, and a certificate for loopback that the CA signs.
func (r *Registry) certify() error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "registry"}, NotBefore: ca.NotBefore,
		NotAfter:    ca.NotAfter,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	r.CA = filepath.Join(r.dir, "ca.pem")
	pool := x509.NewCertPool()
	var errs []error
	for path, block := range map[string]*pem.Block{
		r.CA:                             {Type: "CERTIFICATE", Bytes: caDER},
		filepath.Join(r.dir, "cert.pem"): {Type: "CERTIFICATE", Bytes: der},
		filepath.Join(r.dir, "key.pem"):  {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		errs = append(errs, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER}))
	r.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return errors.Join(errs...)
}

// URL is the registry's address.
func (r *Registry) URL() string {
	if r.opts.TLS {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// Client returns a client that trusts the registry's CA.
func (r *Registry) Client() *http.Client { return r.client }

func (r *Registry) do(ctx context.Context, method, path, contentType string, body []byte) (*http.Response, error) {
	if !strings.Contains(path, "://") {
		path = r.URL() + path
	}
	req, err := http.NewRequestWithContext(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if r.opts.Login {
		req.SetBasicAuth(RegistryUser, RegistryPassword)
	}
	return r.client.Do(req)
}

// PushBlob uploads a config or a layer.
func (r *Registry) PushBlob(ctx context.Context, repository string, data []byte) error {
	resp, err := r.do(ctx, http.MethodPost, "/v2/"+repository+"/blobs/uploads/", "", nil)
	if err := done(resp, err, http.StatusAccepted); err != nil {
		return fmt.Errorf("begin an upload to %s: %w", repository, err)
	}
	at := resp.Header.Get("Location")
	separator := "?"
	if strings.Contains(at, "?") {
		separator = "&"
	}
	resp, err = r.do(ctx, http.MethodPut, at+separator+"digest="+digest.FromBytes(data).String(),
		"application/octet-stream", data)
	if err := done(resp, err, http.StatusCreated); err != nil {
		return fmt.Errorf("upload a blob to %s: %w", repository, err)
	}
	return nil
}

// PushManifest uploads a manifest under a tag.
func (r *Registry) PushManifest(ctx context.Context, repository, tag, mediaType string, data []byte) error {
	resp, err := r.do(ctx, http.MethodPut, "/v2/"+repository+"/manifests/"+tag, mediaType, data)
	if err := done(resp, err, http.StatusCreated); err != nil {
		return fmt.Errorf("upload the manifest of %s:%s: %w", repository, tag, err)
	}
	return nil
}

// done reads an answer to its end. It returns an error if the status code is not the wanted one.
func done(resp *http.Response, err error, want int) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != want {
		err = fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return err
}

// TrustRegistry configures how containerd reaches a host: hosts is the text of a hosts.toml.
func (e *Env) TrustRegistry(t testing.TB, host, hosts string) {
	t.Helper()
	dir := filepath.Join(e.registryConfigs(), host)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
}
