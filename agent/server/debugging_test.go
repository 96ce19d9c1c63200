package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/telemetry/metrics"
)

// debugged is a server of the socket's routes over a fixture.
func debugged(t *testing.T, f *fixture, setVerbosity func(uint32)) http.Handler {
	t.Helper()
	if f.pods == nil {
		f.pods = []*v1.Pod{webPod()}
	}
	s, err := New(Config{
		Node:           "node",
		Version:        "v9.8.7",
		Kubernetes:     "v1.36.3+berth",
		CheckpointsDir: filepath.Join(t.TempDir(), "checkpoints"),
		Flags:          map[string]string{"v": "2", "root-dir": "/r"},
	}, f, Deps{
		Runtime:      f,
		Stats:        f,
		Metrics:      metrics.New("node", "v1"),
		Logger:       slog.New(slog.NewTextHandler(t.Output(), nil)),
		SetVerbosity: setVerbosity,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s.socketRoutes()
}

func send(h http.Handler, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestZPages(t *testing.T) {
	h := debugged(t, &fixture{}, nil)
	for _, tc := range []struct {
		path, accept string
		code         int
		want         string
	}{
		{"/flagz", "", 200, "\nkubelet flagz\nWarning: "},
		{"/flagz", "*/*", 200, "root-dir=/r\nv=2\n"},
		{
			"/flagz", "application/json;g=config.k8s.io;v=v1beta1;as=Flagz", 200,
			`{"apiVersion":"config.k8s.io/v1beta1","flags":{"root-dir":"/` +
				`r","v":"2"},"kind":"Flagz","metadata":{"name":"kubelet"}}`,
		},
		{"/flagz", "application/yaml; v=v1beta1; g=config.k8s.io; as=Flagz", 200, "flags:\n  root-dir: /r\n"},
		{"/flagz", "application/json", 406, "text/plain"},
		{"/flagz", "application/json;g=config.k8s.io;v=v1beta1;as=Statusz", 406, "text/plain"},
		{"/flagz", "application/json;g=config.k8s.io;v=v2;as=Flagz", 406, "text/plain"},
		{"/flagz", "application/vnd.kubernetes.protobuf, text/plain", 200, "v=2\n"},
		{"/flagz", ";;", 406, ""},
		{
			"/statusz", "", 200,
			"Binary version: v9.8.7\nEmulation version: v1.36.3+berth\nPaths: /attach /berth /checkpoint /configz " +
				"/containerLogs /debug /exec /flagz /healthz /logs /metrics /pods /portForward /run /runningpods " +
				"/stats /statusz\n",
		},
		{"/statusz", "application/json;g=config.k8s.io;v=v1beta1;as=Statusz", 200, `"binaryVersion":"v9.8.7"`},
		{
			"/statusz", "application/json;g=config.k8s.io;v=v1alpha1;as=Statusz", 200,
			`"apiVersion":"config.k8s.io/v1alpha1"`,
		},
	} {
		w := send(h, "GET", tc.path, "", "Accept", tc.accept)
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s (%s): %d %s, want %d %q", tc.path, tc.accept, w.Code, w.Body, tc.code, tc.want)
		}
		if old := strings.Contains(tc.accept, "v1alpha1"); old != (w.Header().Get("Warning") != "") {
			t.Errorf("%s (%s): warning %q", tc.path, tc.accept, w.Header().Get("Warning"))
		}
	}
}

func TestCheckpoint(t *testing.T) {
	f := &fixture{}
	h := debugged(t, f, nil)
	w := send(h, "POST", "/checkpoint/default/web-node/main?timeout=7", "")
	var made struct{ Items []string }
	if err := json.Unmarshal(w.Body.Bytes(), &made); w.Code != 200 || err != nil || len(made.Items) != 1 {
		t.Fatalf("%d %s (%v)", w.Code, w.Body, err)
	}
	if text, err := os.ReadFile(made.Items[0]); err != nil || string(text) != "id-main 7s" {
		t.Errorf("the runtime was asked for %q (%v)", text, err)
	}
	if base := filepath.Base(made.Items[0]); !strings.HasPrefix(base, "checkpoint-web-node_default-main-20") ||
		!strings.HasSuffix(base, ".tar") {
		t.Errorf("it is called %s", base)
	}
	if info, err := os.Stat(filepath.Dir(made.Items[0])); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("its directory: %v %v", info, err)
	}
	for path, want := range map[string]string{
		"/checkpoint/default/nope/main":               "404 does not exist",
		"/checkpoint/default/web-node/nope":           "404 not found in pod",
		"/checkpoint/default/web-node/main?timeout=x": "404 cannot parse value of timeout parameter",
		"/checkpoint/default/web-node/waits":          "500 does not run",
	} {
		w := send(h, "POST", path, "")
		code, text, _ := strings.Cut(want, " ")
		if http.StatusText(w.Code) == "" || code != strings.Fields(w.Result().Status)[0] ||
			!strings.Contains(w.Body.String(), text) {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
	for err, want := range map[error]string{
		errdefs.ErrNotImplemented.WithMessage("unknown method"): "the container runtime has no checkpoints",
		errors.New("criu binary not found"): "checkpointing of default/web-node/main failed (criu " +
			"binary not found)",
	} {
		f.noCheckpoints = err
		if w := send(h, "POST", "/checkpoint/default/web-node/main", ""); w.Code != 500 ||
			!strings.Contains(w.Body.String(), want) {
			t.Errorf("%v: %d %s", err, w.Code, w.Body)
		}
	}
}

// A second checkpoint waits for nobody: it is refused while one is made.
func TestOneCheckpointAtATime(t *testing.T) {
	f := &fixture{block: make(chan struct{}), entered: make(chan struct{})}
	h := debugged(t, f, nil)
	first := make(chan int)
	go func() { first <- send(h, "POST", "/checkpoint/default/web-node/main", "").Code }()
	<-f.entered
	if w := send(h, "POST", "/checkpoint/default/web-node/main", ""); w.Code != http.StatusTooManyRequests ||
		w.Header().Get("Retry-After") == "" {
		t.Errorf("a second one: %d %s", w.Code, w.Body)
	}
	close(f.block)
	if code := <-first; code != 200 {
		t.Errorf("the first one: %d", code)
	}
}

func TestVerbosity(t *testing.T) {
	set := []uint32{}
	h := debugged(t, &fixture{}, func(v uint32) { set = append(set, v) })
	for _, tc := range []struct {
		method, body string
		code         int
		want         string
	}{
		{"PUT", "10", 200, "successfully set klog.logging.verbosity to 10"},
		{"PUT", "2\n", 200, "successfully set klog.logging.verbosity to 2"},
		{"PUT", "-1", 400, "must be a number"},
		{"PUT", "", 400, "must be a number"},
		{"PUT", strings.Repeat("1", 1<<20), 413, "more than 65536 bytes"},
		{"GET", "", 406, "unsupported http method"},
	} {
		if w := send(h, tc.method, "/debug/flags/v", tc.body); w.Code != tc.code ||
			!strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %.10q: %d %s", tc.method, tc.body, w.Code, w.Body)
		}
	}
	if len(set) != 2 || set[0] != 10 || set[1] != 2 {
		t.Errorf("set to %v", set)
	}
}

// A stream that rests is closed, one that is used is not.
func TestIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		dial := closeIdle(func(context.Context, string, string) (net.Conn, error) { return near, nil }, time.Minute)
		conn, err := dial(t.Context(), "tcp", "x")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(far, far) }()
		buf := make([]byte, 1)
		for range 5 {
			time.Sleep(50 * time.Second)
			if _, err := conn.Write([]byte("a")); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if _, err := conn.Read(buf); err == nil || time.Since(began) != time.Minute {
			t.Errorf("it ended after %v with %v", time.Since(began), err)
		}
		if err := conn.Close(); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
	if dial := closeIdle(func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF },
		time.Minute); dial != nil {
		if _, err := dial(t.Context(), "tcp", "x"); !errors.Is(err, io.EOF) {
			t.Errorf("a connection that there is not: %v", err)
		}
	}
}
