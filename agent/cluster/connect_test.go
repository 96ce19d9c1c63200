package cluster

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/berthd/berth/agent/cluster/certs"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/configs"
)

// answering is a transport that always answers.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// TestRequestsWaitForACertificate shows that requests neither fail nor are sent before there is
// one, and end with their contexts.
func TestRequestsWaitForACertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		w := waiting{ready, answering{}}
		ctx, leave := context.WithCancel(t.Context())
		code := make(chan int, 1)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api", nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				resp, err := w.RoundTrip(req)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					code <- 0
					return
				}
				resp.Body.Close()
				code <- resp.StatusCode
			}()
		}
		synctest.Wait()
		select {
		case c := <-code:
			t.Fatalf("answered %d too early", c)
		default:
		}
		leave()
		if c := <-code; c != 0 {
			t.Errorf("who left got %d", c)
		}
		close(ready)
		if c := <-code; c != http.StatusNoContent {
			t.Errorf("who waited got %d", c)
		}
	})
}

const bootstrapFile = `apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443"}}]
users: [{name: u, user: {token: abcdef.0123456789abcdef}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
`

// TestDamagedClientCertificate shows that a certificate in the store that cannot be read is kept
// aside, and that the node goes on with what else it has: the bootstrap's way, or the certificate
// of the kubeconfig itself. Where it has neither, it says which file is damaged and what helps.
func TestDamagedClientCertificate(t *testing.T) {
	dir := t.TempDir()
	cfg := &configs.Config{Flags: configs.Flags{
		Kubeconfig:          filepath.Join(dir, "kubelet.conf"),
		BootstrapKubeconfig: filepath.Join(dir, "bootstrap.conf"),
		CertDir:             filepath.Join(dir, "pki"),
	}}
	cfg.Kubelet.RotateCertificates = true
	if err := os.WriteFile(cfg.BootstrapKubeconfig, []byte(bootstrapFile), 0o600); err != nil {
		t.Fatal(err)
	}
	store := certs.NewStore(cfg.CertDir, certs.ClientName)
	start := func() error {
		_, err := Connect(cfg, &node.Node{Name: "n1"}, "v1", metrics.New("n1", "v1"), nil,
			slog.New(slog.DiscardHandler))
		return err
	}
	if err := start(); err != nil { // the kubeconfig names the store from now on
		t.Fatal(err)
	}
	damage := func(text string) {
		t.Helper()
		if err := os.WriteFile(store.Path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (texts []string) {
		files, err := filepath.Glob(filepath.Join(cfg.CertDir, "*.damaged"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
		return texts
	}
	for _, text := range []string{"", "half a file", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		damage(text)
		if err := start(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got := kept(); len(got) != 1 || got[0] != text {
			t.Errorf("%q: kept %q", text, got)
		}
		if _, err := store.Current(); err != nil {
			t.Errorf("%q: the store has %v", text, err)
		}
	}
	if err := start(); err != nil || len(kept()) != 0 {
		t.Errorf("a good store: %v", err)
	}

	good, err := os.ReadFile(store.Path())
	if err != nil {
		t.Fatal(err)
	}
	cfg.BootstrapKubeconfig = ""
	damage("half")
	for _, rotate := range []bool{true, false} {
		cfg.Kubelet.RotateCertificates = rotate
		err = start()
		if err == nil ||
			!strings.Contains(err.Error(), "its client certificate in "+store.Path()+" cannot be used: ") ||
			!strings.Contains(err.Error(), "--bootstrap-kubeconfig") {
			t.Errorf("rotate %v: no way in: %v", rotate, err)
		}
	}
	if text, err := os.ReadFile(store.Path()); err != nil || string(text) != "half" {
		t.Errorf("the damaged file is %q, %v", text, err)
	}

	cfg.Kubelet.RotateCertificates = true
	elsewhere := filepath.Join(dir, "own.pem")
	text, err := os.ReadFile(cfg.Kubeconfig)
	if err == nil {
		err = errors.Join(os.WriteFile(elsewhere, good, 0o600),
			os.WriteFile(cfg.Kubeconfig, []byte(strings.ReplaceAll(string(text), store.Path(), elsewhere)), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Errorf("the kubeconfig's own: %v", err)
	}
	if got := kept(); len(got) != 1 || got[0] != "half" {
		t.Errorf("kept %q", got)
	}
}

// TestBootstrapFiles shows what a node without a certificate writes, that the token stays out of
// it, and that a second start begins anew.
func TestBootstrapFiles(t *testing.T) {
	dir := t.TempDir()
	cfg := &configs.Config{Flags: configs.Flags{
		Kubeconfig:          filepath.Join(dir, "etc", "kubelet.conf"),
		BootstrapKubeconfig: filepath.Join(dir, "bootstrap.conf"),
		CertDir:             filepath.Join(dir, "pki"),
	}}
	start := func() error {
		connection, err := Connect(cfg, &node.Node{Name: "n1"}, "v1", metrics.New("n1", "v1"), nil,
			slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		conn, rotators := connection.Conn, connection.Rotators
		if rotators.Client == nil || rotators.Serving != nil || len(rotators.loops()) != 1 ||
			conn.Host() != "https://192.0.2.1:6443" {
			t.Errorf("%+v of %s", rotators, conn.Host())
		}
		select {
		case <-rotators.Client.Ready():
			t.Error("there is a certificate")
		default:
		}
		return nil
	}
	if err := start(); err == nil ||
		!strings.Contains(err.Error(), "--bootstrap-kubeconfig: reading "+cfg.BootstrapKubeconfig) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(cfg.BootstrapKubeconfig, []byte(bootstrapFile), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := start(); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(cfg.Kubeconfig)
		if err != nil || strings.Contains(string(text), "abcdef") ||
			!strings.Contains(string(text), "client-key: "+cfg.CertDir+"/kubelet-client-current.pem") {
			t.Errorf("%v\n%s", err, text)
		}
		if info, err := os.Stat(cfg.Kubeconfig); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v %v", info, err)
		}
	}
	// Without the bootstrap's file, what was written is of no use.
	cfg.BootstrapKubeconfig = ""
	cfg.Kubelet.RotateCertificates = true
	if err := start(); err != nil {
		t.Error(err)
	}
}
