package agent

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

	"github.com/berthd/berth/agent/metrics"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/configs"
)

// answering is a transport that always answers.
type answering struct{}

func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// TestRequestsWaitForACertificate shows that requests neither fail nor are sent before there is one, and end with their contexts.
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

// TestBootstrapFiles shows what a node without a certificate writes, that the token stays out of it, and that a second start begins anew.
func TestBootstrapFiles(t *testing.T) {
	dir := t.TempDir()
	cfg := &configs.Config{Flags: configs.Flags{
		Kubeconfig: filepath.Join(dir, "etc", "kubelet.conf"), BootstrapKubeconfig: filepath.Join(dir, "bootstrap.conf"), CertDir: filepath.Join(dir, "pki"),
	}}
	start := func() error {
		conn, rotators, err := connect(cfg, &node.Node{Name: "n1"}, "v1", metrics.New("n1", "v1"), nil, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		if rotators.Client == nil || rotators.Serving != nil || len(rotators.loops()) != 1 || conn.Host() != "https://192.0.2.1:6443" {
			t.Errorf("%+v of %s", rotators, conn.Host())
		}
		select {
		case <-rotators.Client.Ready():
			t.Error("there is a certificate")
		default:
		}
		return nil
	}
	if err := start(); err == nil || !strings.Contains(err.Error(), "--bootstrap-kubeconfig: reading "+cfg.BootstrapKubeconfig) {
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
		if err != nil || strings.Contains(string(text), "abcdef") || !strings.Contains(string(text), "client-key: "+cfg.CertDir+"/kubelet-client-current.pem") {
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
