package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/berthd/berth/test/env"
)

// faultyServer is where a [FaultProxy] listens, in the cluster's network.
const faultyServer = env.HostIP + ":7443"

// Fault is what happens to one request to the API server.
type Fault struct {
	// Code, if set, is the code of the answer, and the API server does not get the request.
	// RetryAfter is the header of that name, in seconds.
	Code, RetryAfter int
	// Late is by how much the API server's answer is delayed. Cut is how long after its beginning
	// the answer breaks off.
	Late, Cut time.Duration
}

// FaultProxy stands between a node and the API server. [Cluster.FaultProxy] makes it.
type FaultProxy struct {
	// Kubeconfig leads to the proxy.
	Kubeconfig string

	mu      sync.Mutex
	fault   func(*http.Request) Fault
	asked   []string        // the requests since the last call of Asked
	streams context.Context //nolint:containedctx // of the watches that have begun since Set was called last
	cut     context.CancelFunc
}

// FaultProxy starts a proxy for the node with that name, and sends requests to the API server with
// the node's credentials. The proxy passes everything on until [FaultProxy.Set].
func (c *Cluster) FaultProxy(t testing.TB, node string) *FaultProxy {
	t.Helper()
	next, err := rest.TransportFor(c.ConfigFor(t, "proxy-"+node, nodeSubject(node)))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := c.PKI.CA.Issue(c.Folder, "through-proxy", nodeSubject(node))
	if err != nil {
		t.Fatal(err)
	}
	p := &FaultProxy{Kubeconfig: filepath.Join(c.Folder, "through-proxy.conf")}
	p.Set(nil)
	if err := WriteKubeconfig(p.Kubeconfig, "https://"+faultyServer, c.PKI.CA.File, map[string]any{
		"client-certificate": pair.Cert, "client-key": pair.Key,
	}); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(Server)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     next,
		FlushInterval: -1, // passes streams on at once
		ErrorLog:      log.New(io.Discard, "", 0),
		// as if nobody listened
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ModifyResponse: func(r *http.Response) error {
			if f, ok := r.Request.Context().Value(faultKey{}).(Fault); ok && f.Late > 0 {
				sleep(r.Request.Context(), f.Late)
			}
			return nil
		},
	}
	server := &http.Server{
		Handler: p.handler(forward), TLSConfig: c.clientsOnly(t), ErrorLog: log.New(io.Discard, "", 0),
		ReadHeaderTimeout: time.Minute,
	}
	var l net.Listener
	if err := c.In(func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", faultyServer)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, c.PKI.Server.Cert, c.PKI.Server.Key)
	}()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return p
}

// clientsOnly accepts only clients whose certificate the cluster's authority signed.
func (c *Cluster) clientsOnly(t testing.TB) *tls.Config {
	t.Helper()
	text, err := os.ReadFile(c.PKI.CA.File)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS12}
}

// faultKey is the key of a fault in a request's context.
type faultKey struct{}

func (p *FaultProxy) handler(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		verb := r.Method
		if watches(r) {
			verb = watchVerb
		}
		p.asked = append(p.asked, verb+" "+r.URL.Path)
		var f Fault
		if p.fault != nil {
			f = p.fault(r)
		}
		streams := p.streams
		p.mu.Unlock()
		if f.Code != 0 {
			if f.RetryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
			}
			http.Error(w, "the test says no", f.Code)
			return
		}
		ctx, cancel := context.WithCancel(context.WithValue(r.Context(), faultKey{}, f))
		defer cancel()
		if watches(r) {
			defer context.AfterFunc(streams, cancel)()
		}
		if f.Cut > 0 {
			defer time.AfterFunc(f.Cut, cancel).Stop()
		}
		forward.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Set decides what happens to requests from now on; with nil they are passed on. Watches that have
// begun break off.
func (p *FaultProxy) Set(fault func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut != nil {
		p.cut()
	}
	p.fault = fault
	p.streams, p.cut = context.WithCancel(context.Background())
}

// Asked returns the requests since its last call, each with its method, or [watchVerb], and its
// path.
func (p *FaultProxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.asked
	p.asked = nil
	return out
}

// watchVerb replaces the method of a watch.
const watchVerb = "WATCH"

// watches reports whether a request is a watch.
func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
