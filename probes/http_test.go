package probes

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The timeouts of probes, in seconds. patient is for probes that get an answer, also on a busy
// machine. brief is for probes that get no answer: it is long enough to reach the point under test.
const (
	patient = 60
	brief   = 3
)

// testProber returns a prober on the loopback interface.
func testProber(cfg Config) *prober { return New(cfg, Deps{}).prober }

// split returns the host and port of an address or URL.
func split(t *testing.T, address string) (string, int32) {
	t.Helper()
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return host, int32(n)
}

// closedPort returns a loopback port on which nothing listens. The port is bound, so nobody else
// can listen on it until the test ends.
func closedPort(t *testing.T) int32 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return int32(at.(*unix.SockaddrInet4).Port)
}

// silent accepts connections and never answers.
func silent(t *testing.T) int32 {
	t.Helper()
	return listen(t, func(net.Conn) {})
}

// listen calls serve with each connection. Connections stay open until the test ends, unless serve
// closes them.
func listen(t *testing.T, serve func(net.Conn)) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var conns []net.Conn
		defer func() {
			for _, c := range conns {
				c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
			serve(c)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	_, port := split(t, l.Addr().String())
	return port
}

func httpTask(port int32, get v1.HTTPGetAction) task {
	get.Port = intstr.FromInt32(port)
	return task{
		container: &v1.Container{Name: "c"},
		podIP:     "127.0.0.1",
		spec:      &v1.Probe{ProbeHandler: v1.ProbeHandler{HTTPGet: &get}, TimeoutSeconds: patient},
	}
}

// within returns a task with another timeout, in seconds.
func within(seconds int32, t task) task {
	t.spec.TimeoutSeconds = seconds
	return t
}

func TestHTTP(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s", r.Host, r.UserAgent(), r.Header.Get("Accept"), r.Header.Get("X-Custom"))
		if r.Header.Get("Authorization") != "" || r.Header.Get("Accept-Encoding") != "" || !r.Close {
			t.Errorf("request carries %v, close %v", r.Header, r.Close)
		}
	})
	mux.HandleFunc("/query", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.URL.RawQuery) })
	mux.HandleFunc("/fail", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "secret", http.StatusInternalServerError)
	})
	mux.HandleFunc("/huge", func(w http.ResponseWriter, r *http.Request) {
		for chunk := strings.Repeat("x", 1<<20); r.Context().Err() == nil; {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/binary", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("a\xff\x00b")) })
	mux.HandleFunc("/hang", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/slowbody", func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/query?redirected", http.StatusFound)
	})
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/loop", http.StatusFound)
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://localhost:1/")
		w.WriteHeader(http.StatusFound)
		io.WriteString(w, "moved")
	})
	mux.HandleFunc("/header", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Big", strings.Repeat("x", maxHeaderBytes))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	_, port := split(t, server.URL)
	self := fmt.Sprintf("127.0.0.1:%d", port)

	tests := []struct {
		name    string
		get     v1.HTTPGetAction
		timeout int32 // in seconds; 0 means patient
		want    reply
		err     string
	}{
		{
			name: "defaults",
			get:  v1.HTTPGetAction{Path: "/ok"},
			want: reply{outcome: success, text: self + " kube-probe/1.36 */* "},
		},
		{
			name: "headers", get: v1.HTTPGetAction{Path: "ok", HTTPHeaders: []v1.HTTPHeader{
				{Name: "host", Value: "example.test"},
				{Name: "user-agent", Value: "me"},
				{Name: "x-custom", Value: "1"},
				{Name: "accept", Value: ""},
			}},
			want: reply{outcome: success, text: "example.test me  1"},
		},
		{name: "query", get: v1.HTTPGetAction{Path: "/query?a=b&c"}, want: reply{outcome: success, text: "a=b&c"}},
		{
			name: "status",
			get:  v1.HTTPGetAction{Path: "/fail"},
			want: reply{outcome: failure, text: "HTTP probe failed with statuscode: 500"},
		},
		{
			name: "huge body",
			get:  v1.HTTPGetAction{Path: "/huge"},
			want: reply{outcome: success, text: strings.Repeat("x", maxOutput)},
		},
		{
			name: "body that is no text",
			get:  v1.HTTPGetAction{Path: "/binary"},
			want: reply{outcome: success, text: "a\uFFFD\x00b"},
		},
		{
			name: "redirect on the host",
			get:  v1.HTTPGetAction{Path: "/here"},
			want: reply{outcome: success, text: "redirected"},
		},
		{
			name: "redirect elsewhere",
			get:  v1.HTTPGetAction{Path: "/away"},
			want: reply{outcome: warning, text: "Probe terminated redirects, Response body: moved"},
		},
		{
			name: "redirects without end",
			get:  v1.HTTPGetAction{Path: "/loop"},
			want: reply{outcome: failure, text: `Get "/loop": stopped after 10 redirects`},
		},
		{
			name: "hangs", get: v1.HTTPGetAction{Path: "/hang"}, timeout: brief,
			want: reply{
				outcome: failure,
				text: `Get "http://` + self +
					`/hang": context deadline exceeded (Client.Timeout exceeded while awaiting headers)`,
			},
		},
		{
			name:    "body hangs",
			get:     v1.HTTPGetAction{Path: "/slowbody"},
			timeout: brief,
			want:    reply{outcome: failure, text: ""},
			err:     "read response body: context deadline exceeded",
		},
		{
			name: "huge header",
			get:  v1.HTTPGetAction{Path: "/header"},
			want: reply{
				outcome: failure,
				text: `Get "http://` + self +
					`/header": net/http: HTTP/1.x transport connection broken: ` +
					`net/http: server response headers exceeded`,
			},
		},
		{
			name: "https to http",
			get:  v1.HTTPGetAction{Path: "/ok", Scheme: "HTTPS"},
			want: reply{
				outcome: failure,
				text:    `Get "https://` + self + `/ok": http: server gave HTTP response to HTTPS client`,
			},
		},
	}
	p := testProber(Config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := p.run(t.Context(), within(cmp.Or(tt.timeout, patient), httpTask(port, tt.get)))
			if (err == nil) != (tt.err == "") || (err != nil && !strings.HasPrefix(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if got.outcome != tt.want.outcome ||
				(got.text != tt.want.text &&
					(tt.want.outcome != failure || tt.want.text == "" || !strings.HasPrefix(got.text, tt.want.text))) {
				t.Errorf("got %s %.300q, want %s %.300q", got.outcome, got.text, tt.want.outcome, tt.want.text)
			}
		})
	}
}

func TestHTTPBrokenServers(t *testing.T) {
	tests := []struct {
		name    string
		port    int32
		timeout int32
		want    string
	}{
		{"nobody listens", closedPort(t), patient, "connect: connection refused"},
		{
			"never answers", silent(t), brief,
			"context deadline exceeded (Client.Timeout exceeded while awaiting headers)",
		},
		{"hangs up", listen(t, func(c net.Conn) { c.Close() }), patient, ""},
		{
			"speaks something else",
			listen(t, func(c net.Conn) { c.Read(make([]byte, 1)); io.WriteString(c, "220 smtp\r\n") }), patient,
			"malformed HTTP",
		},
	}
	p := testProber(Config{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := p.run(t.Context(), within(tt.timeout, httpTask(tt.port, v1.HTTPGetAction{Path: "/"})))
			if err != nil || got.outcome != failure || !strings.Contains(got.text, tt.want) {
				t.Errorf("got %s %q, %v; want a failure with %q", got.outcome, got.text, err, tt.want)
			}
		})
	}
}

func TestHTTPS(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.Proto)
		}))
		server.EnableHTTP2 = http2
		server.StartTLS()
		_, port := split(t, server.URL)
		got, err := testProber(Config{}).run(t.Context(),
			httpTask(port, v1.HTTPGetAction{Path: "/", Scheme: v1.URISchemeHTTPS}))
		want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[http2]
		if err != nil || got != (reply{outcome: success, text: want}) {
			t.Errorf("got %+v, %v; want %s", got, err, want)
		}
		server.Close()
	}
}

func TestHTTPIgnoresProxies(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	t.Setenv("NO_PROXY", "")
	if NewHTTPTransport(false).Proxy != nil {
		t.Error("the transport has a proxy")
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	port := listen(t, func(net.Conn) { cancel() })
	if _, err := testProber(Config{}).run(ctx, httpTask(port, v1.HTTPGetAction{Path: "/"})); ctx.Err() == nil {
		t.Errorf("not cancelled: %v", err)
	}
}

func TestDenyLinkLocal(t *testing.T) {
	p := testProber(Config{DenyLinkLocal: true})
	for _, host := range []string{"169.254.169.254", "fe80::1", "::ffff:169.254.169.254"} {
		got, err := p.run(t.Context(), httpTask(80, v1.HTTPGetAction{Host: host, Path: "/latest"}))
		if err != nil || got.outcome != failure || !strings.Contains(got.text, "is not allowed as a target") {
			t.Errorf("%s: %s %q, %v", host, got.outcome, got.text, err)
		}
	}
	port := silent(t)
	if got, err := p.run(t.Context(), tcpTask("", intstr.FromInt32(port))); err != nil || got.outcome != success {
		t.Errorf("loopback: %+v, %v", got, err)
	}
}

func TestNoPodIP(t *testing.T) {
	tasks := map[string]task{
		"http": httpTask(80, v1.HTTPGetAction{}),
		"tcp":  tcpTask("", intstr.FromInt32(80)),
		"grpc": grpcTask(80, nil),
	}
	for name, task := range tasks {
		task.podIP = ""
		if got, err := testProber(Config{}).run(t.Context(), task); err == nil || got.outcome != unknown {
			t.Errorf("%s: %+v, %v; want an error, not a request to the node", name, got, err)
		}
	}
}

func TestNoHandler(t *testing.T) {
	got, err := testProber(Config{}).run(t.Context(), task{container: &v1.Container{Name: "c"}, spec: &v1.Probe{}})
	if err == nil || got.outcome != unknown {
		t.Errorf("%+v, %v", got, err)
	}
}

// A redirect to another host is a success, and an event warns about it.
func TestRedirectElsewhereWarns(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://elsewhere.test/")
		w.WriteHeader(http.StatusFound)
		_, _ = io.WriteString(w, "moved")
	}))
	defer server.Close()
	events := make(chan string, 100)
	m := New(Config{}, Deps{Events: func(_ *v1.Pod, container, eventType, reason, message string) {
		events <- strings.Join([]string{container, eventType, reason, message}, "|")
	}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	probe := &v1.Probe{
		ProbeHandler: v1.ProbeHandler{
			HTTPGet: &v1.HTTPGetAction{Port: intstr.Parse(server.URL[len("http://127.0.0.1:"):])},
		},
		PeriodSeconds:    100,
		TimeoutSeconds:   patient,
		FailureThreshold: 1,
	}
	m.Sync(podOf(v1.Container{ReadinessProbe: probe}), "127.0.0.1",
		[]Target{{Name: "c", ContainerID: "id1", StartedAt: time.Now()}})
	want := "c|Warning|ProbeWarning|Readiness probe warning: Probe terminated redirects, Response body: moved"
	if got := <-events; got != want {
		t.Errorf("event %s, want %s", got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
