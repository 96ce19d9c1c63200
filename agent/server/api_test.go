package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/cluster/certs"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/configs"
)

// doorkeeper lets in what it is told to, and notes what it was asked.
type doorkeeper struct {
	mu    sync.Mutex
	shut  bool
	asked []string
}

func (d *doorkeeper) Check(w http.ResponseWriter, r *http.Request, path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked = append(d.asked, r.Method+" "+path)
	if d.shut {
		w.WriteHeader(http.StatusForbidden)
	}
	return !d.shut
}

// last returns what it was asked last.
func (d *doorkeeper) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.asked) == 0 {
		return ""
	}
	return d.asked[len(d.asked)-1]
}

// everything is a config of a port that has all of the kubelet's API.
var everything = Config{Handlers: Handlers{
	Debugging:      true,
	Profiling:      true,
	DebugFlags:     true,
	SystemLogs:     true,
	SystemLogQuery: true,
	Checkpoint:     true,
	Flagz:          true,
	Statusz:        true,
}}

// TestGuardStandsBeforeEverything shows that every spelling of a path is judged by the handler that
// it leads to, and that nothing is answered unjudged.
func TestGuardStandsBeforeEverything(t *testing.T) {
	d := &doorkeeper{shut: true}
	s := newAPI(t, d, everything)
	h := s.apiRoutes()
	for _, tc := range []struct{ method, target, want string }{
		{"GET", "/exec/default/web-node/main?command=id&output=1", "GET /exec/{namespace}/{pod}/{container}"},
		{"GET", "/%65xec/default/web-node/main", "GET /exec/{namespace}/{pod}/{container}"},
		{"GET", "//exec/default/web-node/main", "GET /exec/{namespace}/{pod}/{container}"},
		{"GET", "/metrics/../exec/default/web-node/main", "GET /exec/{namespace}/{pod}/{container}"},
		{"GET", "/pods/..%2Fexec/default/web-node/main", "GET /pods/"},
		{"GET", "/exec/default/web-node/..%2F..%2Fmetrics", "GET /exec/{namespace}/{pod}/{container}"},
		{"PUT", "/exec/default/web-node/main", "PUT /exec/default/web-node/main"},
		{"POST", "/run/default/web-node/main?cmd=id", "POST /run/{namespace}/{pod}/{container}"},
		{"GET", "/healthz/ping", "GET /healthz/{check}"},
		{"GET", "/debug/pprof/heap", "GET /debug/pprof/"},
		{"GET", "/logs/syslog", "GET /logs/"},
		{"GET", "/logs", "GET /logs/"},
		{"PUT", "/debug/flags/v", "PUT /debug/flags/v"},
		{"POST", "/checkpoint/default/web-node/main", "POST /checkpoint/{namespace}/{pod}/{container}"},
		{"GET", "/statusz", "GET /statusz"},
		{"GET", "/berth/v1/pods", "GET /berth/v1/pods"},
		{"GET", "/", "GET /"},
		{"OPTIONS", "*", "OPTIONS *"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://node"+tc.target, nil)
		if tc.target == "*" {
			req, err = http.NewRequestWithContext(t.Context(), tc.method, "https://node", nil)
			req.URL.Path = "*"
		}
		if err != nil {
			t.Fatal(err)
		}
		w := newRecorder()
		h.ServeHTTP(w, req)
		if w.code != http.StatusForbidden || d.last() != tc.want {
			t.Errorf("%s %s: %d, judged as %q, want %q", tc.method, tc.target, w.code, d.last(), tc.want)
		}
	}
}

// TestAPIHasTheKubelets shows what is on the port and what is not, for one who may do everything.
func TestAPIHasTheKubelets(t *testing.T) {
	all, debugging, profiling := everything, Config{Handlers: Handlers{Debugging: true}},
		Config{Handlers: Handlers{Profiling: true}}
	for _, tc := range []struct {
		cfg            Config
		method, target string
		code           int
	}{
		{all, "GET", "/healthz", 200},
		{all, "GET", "/pods", 200},
		{all, "GET", "/runningpods/", 200},
		{all, "GET", "/configz", 200},
		{all, "GET", "/metrics", 200},
		{all, "GET", "/metrics/resource", 200},
		{all, "GET", "/stats/summary", 200},
		{all, "GET", "/debug/pprof/cmdline", 200},
		{all, "GET", "/containerLogs/default/nope/main", 404},
		{all, "POST", "/run/default/web-node/main?cmd=id", 200},
		{all, "POST", "/exec/default/web-node/main?command=id&output=1", 400},

		{all, "GET", "/berth/v1/pods", 404},
		{all, "POST", "/berth/v1/drain", 404},
		{all, "POST", "/berth/v1/pods/default/web-node/ephemeralcontainers", 404},

		{all, "GET", "/logs/", 200},
		{all, "GET", "/logs/../../etc/passwd", 307},
		{all, "POST", "/logs/", 405},
		{all, "GET", "/flagz", 200},
		{all, "GET", "/statusz", 200},
		{all, "POST", "/checkpoint/default/nope/main", 404},
		{all, "GET", "/checkpoint/default/web-node/main", 405},
		{all, "PUT", "/debug/flags/v", 400},
		{all, "GET", "/debug/flags/v", 406},

		{debugging, "GET", "/debug/pprof/cmdline", 405},
		{debugging, "GET", "/debug/flags/v", 405},
		{debugging, "GET", "/logs/", 405},
		{debugging, "GET", "/logs/syslog", 405},
		{debugging, "GET", "/flagz", 404},
		{debugging, "GET", "/statusz", 404},
		{debugging, "POST", "/checkpoint/default/web-node/main", 404},
		{debugging, "GET", "/configz", 200},
		{profiling, "POST", "/run/default/web-node/main?cmd=id", 405},
		{profiling, "GET", "/containerLogs/default/web-node/main", 405},
		{profiling, "GET", "/configz", 404},
		{profiling, "GET", "/statusz", 404},
		{profiling, "GET", "/logs/", 405},
		{profiling, "GET", "/debug/pprof/cmdline", 405},
		{profiling, "GET", "/pods", 200},
		{profiling, "GET", "/healthz", 200},
	} {
		s := newAPI(t, &doorkeeper{}, tc.cfg)
		req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://node"+tc.target, strings.NewReader(""))
		if err != nil {
			t.Fatal(err)
		}
		w := newRecorder()
		s.apiRoutes().ServeHTTP(w, req)
		if w.code != tc.code {
			t.Errorf("%+v %s %s: %d, want %d", tc.cfg, tc.method, tc.target, w.code, tc.code)
		}
	}
}

// newAPI makes a server with a guard that does not listen.
func newAPI(t *testing.T, guard Guard, cfg Config) *Server {
	t.Helper()
	cfg.Node = "node"
	f := &fixture{pods: []*v1.Pod{webPod()}}
	s, err := New(cfg, f, Deps{
		Runtime: f, Stats: f, Metrics: metrics.New("node", "v1"), Guard: guard, TLS: &tls.Config{},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), SetVerbosity: func(uint32) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestAPIPort shows the port itself: TLS only, HTTP/1.1 and 2, callers' certificates are handed on,
// and it ends with the server.
func TestAPIPort(t *testing.T) {
	cert, err := certs.NewSelfSigned(t.TempDir(), []string{"node"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	shown := make(chan int, 10)
	f := &fixture{pods: []*v1.Pod{webPod()}}
	guard := guardFunc(func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		shown <- len(r.TLS.PeerCertificates)
		return true
	})
	r := &rig{fixture: f, socket: t.TempDir() + "/s"}
	r.server, err = New(Config{Socket: r.socket, Node: "node", Ports: onlyPortOf(configs.PortAPI, address)}, f, Deps{
		Runtime: f,
		Stats:   f,
		Metrics: metrics.New("node", "v1"),
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		Guard:   guard,
		TLS:     certs.ServerConfig(cert, func() *x509.CertPool { return x509.NewCertPool() }, certs.Limits{}),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.run(t)
	own, err := cert.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		certificates []tls.Certificate
		http2        bool
	}{"HTTP/1.1": {nil, false}, "HTTP/2.0": {[]tls.Certificate{*own}, true}} {
		transport := &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, Certificates: tc.certificates},
			ForceAttemptHTTP2: tc.http2,
		}
		resp := getUntil(t, transport, "https://"+address+"/healthz")
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != "ok" || resp.Proto != name {
			t.Errorf("%s: %s %q %v", name, resp.Proto, body, err)
		}
		if got := <-shown; got != len(tc.certificates) {
			t.Errorf("%s: %d certificates", name, got)
		}
		transport.CloseIdleConnections()
	}
	resp := getUntil(t, &http.Transport{DisableKeepAlives: true}, "http://"+address+"/healthz")
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("without TLS: %s", resp.Status)
	}
	refusesLargeFrames(t, address)
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Error("the port is open after the end")
	}
}

// refusesLargeFrames checks that nobody can make the server hold much of a frame of HTTP/2: it
// closes the connection when the frame's length has come, and does not wait for the rest.
func refusesLargeFrames(t *testing.T, address string) {
	t.Helper()
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	settings, data := "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x0f\xff\xff\x00\x00\x00\x00\x00\x01"
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+data); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server waits for a frame of 1 MiB")
	}
}

type guardFunc func(w http.ResponseWriter, r *http.Request, path string) bool

func (f guardFunc) Check(w http.ResponseWriter, r *http.Request, path string) bool {
	return f(w, r, path)
}

// getUntil asks until the port is there.
func getUntil(t *testing.T, transport http.RoundTripper, url string) *http.Response {
	t.Helper()
	for {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(req)
		if err == nil {
			return resp
		}
		select {
		case <-t.Context().Done():
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAPINeedsAGuard(t *testing.T) {
	for name, deps := range map[string]Deps{
		"no TLS":   {Guard: &doorkeeper{}},
		"no guard": {TLS: &tls.Config{}},
	} {
		deps.Metrics = metrics.New("node", "v1")
		if _, err := New(Config{Ports: onlyPortOf(configs.PortAPI, ":10250")}, &fixture{}, deps); err == nil {
			t.Errorf("%s: the port would be open", name)
		}
	}
	// Without the port, nothing is needed.
	if _, err := New(Config{}, &fixture{}, Deps{Metrics: metrics.New("node", "v1")}); err != nil {
		t.Error(err)
	}
}
