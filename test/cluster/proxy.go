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

// Fault is what happens to one request on its way to the API server.
type Fault struct {
	// Code, where it is set, is the answer, and the API server hears of nothing. RetryAfter is its header of that name, in seconds.
	Code, RetryAfter int
	// Late is how long after the API server the answer comes; Cut, how long after its beginning it breaks off.
	Late, Cut time.Duration
}

// FaultProxy stands between a node and the API server. Make it with [Cluster.FaultProxy].
type FaultProxy struct {
	// Kubeconfig leads to the proxy.
	Kubeconfig string

	mu      sync.Mutex
	fault   func(*http.Request) Fault
	asked   []string        // of the requests since Asked was called last
	streams context.Context //nolint:containedctx // of the watches that have begun since Set was called last
	cut     context.CancelFunc
}

// FaultProxy starts a proxy for the node of that name, whose credentials it asks the API server with. It lets everything through until [FaultProxy.Set].
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
	if err := WriteKubeconfig(p.Kubeconfig, "https://"+faultyServer, c.PKI.CA.File, map[string]any{"client-certificate": pair.Cert, "client-key": pair.Key}); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(Server)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     next,
		FlushInterval: -1, // streams
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }, // as if nobody were there
		ModifyResponse: func(r *http.Response) error {
			if f, ok := r.Request.Context().Value(faultKey{}).(Fault); ok && f.Late > 0 {
				sleep(r.Request.Context(), f.Late)
			}
			return nil
		},
	}
	server := &http.Server{Handler: p.handler(forward), TLSConfig: c.clientsOnly(t), ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}
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

// clientsOnly takes nobody but those whose certificate the cluster's authority signed.
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

// faultKey is where a request's context keeps its fault.
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

// Set says what happens to requests from now on; nil lets them through. Watches that have begun break off.
func (p *FaultProxy) Set(fault func(*http.Request) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut != nil {
		p.cut()
	}
	p.fault = fault
	p.streams, p.cut = context.WithCancel(context.Background())
}

// Asked returns method, or [watchVerb], and path of the requests since it was called last.
func (p *FaultProxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.asked
	p.asked = nil
	return out
}

// watchVerb stands in a watch's place of a method.
const watchVerb = "WATCH"

// watches tells whether a request is a watch.
func watches(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
