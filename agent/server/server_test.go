package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

func TestEndpoints(t *testing.T) {
	r := start(t, &fixture{
		kept:    []v1.Event{{Reason: "Started", Message: "m"}},
		results: []source.Result{{File: "/m/bad.yaml", Kind: "Pod", Name: "bad", Message: "no good"}},
		pulls:   []api.Pull{{Image: "c:1", State: "Pulling"}},
		timelines: map[types.UID]timeline.Timeline{"u1": lineOf("Running",
			timeline.Entry{Step: "admit", Outcome: timeline.Done})},
	})
	for _, tc := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/healthz", 200, "ok"},
		{"GET", "/healthz/ping", 200, "ok"},
		{"GET", "/healthz/syncloop?verbose", 200, "[+]syncloop ok"},
		{"GET", "/healthz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\n[+]device-plugin ok\nhealthz check passed"},
		{"GET", "/healthz/device-plugin", 200, "ok"},
		{"GET", "/healthz/nope", 404, "no health check"},
		{"GET", "/pods", 200, `"kind":"PodList"`},
		{"GET", "/pods/", 200, `"name":"web-node"`},
		{"GET", "/runningpods/", 200, `"image":"sha256:1"`},
		{"GET", "/configz", 200, `"maxPods":110`},
		{"GET", "/metrics", 200, "kubelet_http_requests_total"},
		{"GET", "/metrics/probes", 200, ""},
		{"GET", "/metrics/resource", 200, "node_memory_working_set_bytes 0"},
		{"GET", "/metrics/cadvisor", 200, "machine_cpu_cores 0"},
		{"GET", "/metrics/slis", 200, `kubernetes_healthcheck{name="syncloop",type="healthz"} 1`},
		{"GET", "/metrics/slis", 200, `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`},
		{"GET", "/stats/summary", 200, `"rlimit"`},
		{
			"POST", "/stats/summary?only_cpu_and_memory=true", 200,
			`{"node":{"nodeName":"node","startTime":null},"pods":[]}`,
		},
		{"GET", "/berth/v1/pods", 200, `"status":"ImagePullBackOff"`},
		{"GET", "/berth/v1/why/default/web-node", 200, `"phase":"Running","workerPhase":"Running"`},
		{"GET", "/berth/v1/why/default/nope", 404, "does not exist"},
		{"GET", "/berth/v1/why/default/bad-node", 200, `"message":"no good"`},
		{"GET", "/berth/v1/manifests", 200, "/m/bad.yaml"},
		{"GET", "/berth/v1/events", 200, `"reason":"Started"`},
		{"GET", "/berth/v1/images", 200, `{"items":[{"id":"sha256:1","tags":["a:1"],"size":10},{"id":"sha256:2"`},
		{"GET", "/berth/v1/version", 200, `"runtime":"fake"`},
		{"GET", "/debug/pprof/", 200, "goroutine"},
		{"GET", "/debug/pprof/heap?debug=1", 200, "heap profile"},
		{"POST", "/run/default/web-node/main?cmd=ls+-l", 200, "ls+-l"},
		{"GET", "/run/default/web-node/main?cmd=ls", 405, "use POST"},
		{"POST", "/run/default/web-node/main", 400, "?cmd="},
		{"POST", "/run/default/web-node/waits?cmd=ls", 400, "ImagePullBackOff"},
		{"POST", "/exec/default/web-node/main?command=ls&output=1", 400, "Upgrade request required"},
		{"GET", "/exec/default/web-node/main?command=ls&output=1", 400, "Upgrade request required"},
		{"POST", "/exec/default/web-node/main?command=ls", 400, "at least 1 of stdin"},
		{"GET", "/containerLogs/default/web-node/nope", 404, "it has main, waits, again"},
		{"GET", "/containerLogs/default/nope/main", 404, "does not exist"},
		{"GET", "/containerLogs/other/web-node/main", 404, "does not exist"},
		{"GET", "/containerLogs/default/web-node/waits", 400, "is waiting to start: trying and failing to pull image"},
		{"GET", "/containerLogs/default/web-node/main?previous=true", 400, "previous terminated container"},
		{"GET", "/containerLogs/default/web-node/main", 404, "is not there any more"},
		{"GET", "/containerLogs/default/web-node/main?follow=maybe", 400, "must be true or false"},
		{"GET", "/containerLogs/default/web-node/main?tailLines=x", 400, "must be a number"},
		{"GET", "/containerLogs/default/web-node/main?tailLines=-1", 422, "at least 0"},
		{"GET", "/containerLogs/default/web-node/main?limitBytes=0", 422, "at least 1"},
		{"GET", "/containerLogs/default/web-node/main?sinceTime=yesterday", 400, "RFC 3339"},
		{
			"GET", "/containerLogs/default/web-node/main?sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", 422,
			"only one of",
		},
		{"GET", "/containerLogs/default/web-node/main?stream=Stdin", 422, "Stdout or Stderr"},
		{"GET", "/portForward/default/web-node?port=0", 400, "from 1 to 65535"},
		{"GET", "/nope", 404, "there is no /nope"},
		{"DELETE", "/pods", 405, "use GET"},
		{"GET", "/pods/../../etc/passwd", 404, ""},
	} {
		code, text := r.ask(t, tc.method, tc.path, nil)
		if code != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("%s %s: %d %.300q, want %d %q", tc.method, tc.path, code, text, tc.code, tc.want)
		}
		switch {
		case code < 400:
		case strings.HasPrefix(tc.path, "/containerLogs/"):
			// The API server tells whoever runs "kubectl logs" what it reads here, word for word.
			if json.Valid([]byte(text)) || strings.ContainsAny(text, "{}\n") {
				t.Errorf("%s %s: no plain text: %q", tc.method, tc.path, text)
			}
		default:
			var status metav1.Status
			if err := json.Unmarshal([]byte(text), &status); err != nil || int(status.Code) != code ||
				status.Message == "" {
				t.Errorf("%s %s: no Status: %v %q", tc.method, tc.path, err, text)
			}
		}
	}
}

// TestLogErrorsAsJSON asks for a log that is not there as clients do that want JSON.
func TestLogErrorsAsJSON(t *testing.T) {
	r := start(t, &fixture{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		"http://berth/containerLogs/default/web-node/waits", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, */*")
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status metav1.Status
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil ||
		status.Message != `container "waits" in pod "web-node" is waiting to start: trying and failing to pull image` {
		t.Errorf("%+v %v", status, err)
	}
}

func TestSickAgent(t *testing.T) {
	r := start(t, &fixture{sick: errors.New("stuck")})
	if code, text := r.ask(t, "GET", "/healthz", nil); code != 500 ||
		!strings.Contains(text, "[-]syncloop failed: stuck") {
		t.Errorf("healthz: %d %q", code, text)
	}
	if code, _ := r.ask(t, "GET", "/healthz?exclude=syncloop", nil); code != 200 {
		t.Errorf("without syncloop: %d", code)
	}
}

func TestUnservedDevicePlugins(t *testing.T) {
	r := start(t, &fixture{unserved: errors.New("no room for a socket")})
	for _, path := range []string{"/healthz", "/healthz/device-plugin"} {
		if code, text := r.ask(t, "GET", path, nil); code != 500 ||
			!strings.Contains(text, "[-]device-plugin failed: no room for a socket") {
			t.Errorf("%s: %d %q", path, code, text)
		}
	}
	if code, _ := r.ask(t, "GET", "/healthz/syncloop", nil); code != 200 {
		t.Errorf("syncloop: %d", code)
	}
}

func TestFailedRun(t *testing.T) {
	r := start(t, &fixture{exitCode: 3})
	if code, text := r.ask(t, "POST", "/run/default/web-node/main?cmd=false", nil); code != 500 ||
		!strings.Contains(text, "exited with 3") {
		t.Errorf("run: %d %q", code, text)
	}
}

// TestHangingRuntime asks for what needs no runtime while that hangs, and ends the server under
// requests that wait for it.
func TestHangingRuntime(t *testing.T) {
	f := &fixture{block: make(chan struct{}), entered: make(chan struct{}, maxSlow)}
	r := start(t, f)
	if code, _ := r.ask(t, "GET", "/pods", nil); code != 200 {
		t.Errorf("pods: %d", code)
	}
	failed := make(chan error, 1)
	go func() {
		resp, err := r.http.Get("http://berth/runningpods/")
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	<-f.entered
	if err := r.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	<-failed
}

func TestSocketFile(t *testing.T) {
	r := start(t, &fixture{})
	info, err := os.Stat(r.socket)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Fatalf("socket: %v %v", info.Mode(), err)
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := listenSocket(t.Context(), r.socket, "", log); err == nil || !strings.Contains(err.Error(), "answers") {
		t.Errorf("second agent: %v", err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(r.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket is left: %v", err)
	}

	// A socket that a killed agent left is replaced.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: r.socket})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	s, err := listenSocket(t.Context(), r.socket, "", log)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	// What has replaced the socket meanwhile is somebody else's.
	if err := os.Remove(r.socket); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.socket, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := os.Stat(r.socket); err != nil {
		t.Errorf("somebody else's file is gone: %v", err)
	}
	if _, err := listenSocket(t.Context(), r.socket, "", log); err == nil ||
		!strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("file in the way: %v", err)
	}
	for _, bad := range []string{"relative", "/" + strings.Repeat("x", maxSocketPath)} {
		if _, err := listenSocket(t.Context(), bad, "", log); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(r.socket))
	if err != nil || len(entries) != 1 {
		t.Errorf("left in the directory: %v %v", entries, err)
	}
}

func TestPorts(t *testing.T) {
	f := &fixture{pods: []*v1.Pod{webPod()}}
	r := start(t, f)
	for name, h := range map[string]http.Handler{
		"healthz": r.server.healthzRoutes(), "read-only": r.server.readOnlyRoutes(),
	} {
		for path, want := range map[string]map[string]int{
			"/healthz":                             {"healthz": 200, "read-only": 200},
			"/pods":                                {"healthz": 404, "read-only": 200},
			"/metrics":                             {"healthz": 404, "read-only": 200},
			"/metrics/resource":                    {"healthz": 404, "read-only": 200},
			"/stats/summary":                       {"healthz": 404, "read-only": 200},
			"/containerLogs/default/web-node/main": {"healthz": 404, "read-only": 404},
			"/exec/default/web-node/main":          {"healthz": 404, "read-only": 404},
			"/configz":                             {"healthz": 404, "read-only": 404},
			"/debug/pprof/":                        {"healthz": 404, "read-only": 404},
			"/berth/v1/pods":                       {"healthz": 404, "read-only": 404},
		} {
			rec := newRecorder()
			req, err := http.NewRequestWithContext(t.Context(), "GET", path, nil)
			if err != nil {
				t.Fatal(err)
			}
			h.ServeHTTP(rec, req)
			if rec.code != want[name] {
				t.Errorf("%s %s: %d, want %d", name, path, rec.code, want[name])
			}
		}
	}
}

// recorder keeps an answer's code.
type recorder struct {
	code   int
	header http.Header
}

func newRecorder() *recorder                    { return &recorder{code: 200, header: http.Header{}} }
func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(code int)        { r.code = code }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }

// onlyPortOf returns the only port of a server.
func onlyPortOf(name, address string) []configs.Port {
	return []configs.Port{{Name: name, Setting: "setting", Address: address}}
}

// A port takes headers with large tokens, and none that is larger: anybody may send one, and it
// takes much more memory than bytes on the wire. On the socket, whole scripts stand in them.
func TestLargeHeaders(t *testing.T) {
	r := start(t, &fixture{pods: []*v1.Pod{webPod()}})
	r.server.deps.Guard = &doorkeeper{}
	address := serveAPI(t, r.server, nil)
	port := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(client *http.Client, base string, size int) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.Repeat("x", size))
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, tc := range []struct {
		client *http.Client
		base   string
		size   int
		want   int
	}{
		{port, "http://" + address, 15 << 10, http.StatusOK},
		{port, "http://" + address, 21 << 10, http.StatusRequestHeaderFieldsTooLarge},
		{r.http, "http://berth", 60 << 10, http.StatusOK},
		{r.http, "http://berth", 70 << 10, http.StatusRequestHeaderFieldsTooLarge},
	} {
		if code := ask(tc.client, tc.base, tc.size); code != tc.want {
			t.Errorf("%s, a token of %d bytes: %d, want %d", tc.base, tc.size, code, tc.want)
		}
	}
}

func TestTakenPortIsTriedAgainAndDoesNotEndTheServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := start(t, &fixture{})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r.server.cfg.Ports = onlyPortOf(configs.PortHealthz, l.Addr().String())
	r.run(t)
	if code, _ := r.ask(t, "GET", "/pods", nil); code != 200 {
		t.Errorf("pods: %d", code)
	}
}

func TestWatchPods(t *testing.T) {
	f := &fixture{}
	r := start(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next := r.watch(ctx, t, "/berth/v1/pods?watch=true")
	want := func(kind, name, status string) {
		t.Helper()
		var c api.Change
		if err := json.Unmarshal([]byte(<-next), &c); err != nil || c.Type != kind || c.Pod.Name != name ||
			c.Pod.Status != status {
			t.Errorf("got %+v %v, want %s %s %s", c, err, kind, name, status)
		}
	}
	want(api.Added, "web-node", "ImagePullBackOff")
	pod := webPod()
	pod.Status.ContainerStatuses = nil
	f.setPods(pod)
	want(api.Modified, "web-node", "Running")
	other := webPod()
	other.UID, other.Name = "u2", "other-node"
	f.setPods(pod, other)
	want(api.Added, "other-node", "ImagePullBackOff")
	f.setPods(other)
	want(api.Deleted, "web-node", "Running")
	// The server ends under a watch.
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	for range next {
	}
}

func TestWatchEvents(t *testing.T) {
	f := &fixture{kept: []v1.Event{{Message: "kept"}}, events: make(chan v1.Event)}
	r := start(t, f)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	next := r.watch(ctx, t, "/berth/v1/events?watch=true")
	for _, want := range []string{"kept", "one", "two"} {
		if got := <-next; !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if want != "two" {
			f.events <- v1.Event{Message: map[string]string{"kept": "one", "one": "two"}[want]}
		}
	}
	close(f.events)
	if text, ok := <-next; ok {
		t.Errorf("after the end: %q", text)
	}
}

// watch returns the data of server-sent events.
func (r *rig) watch(ctx context.Context, t *testing.T, path string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, "GET", "http://berth"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan string)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(out)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				select {
				case out <- data:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	t.Cleanup(func() { <-done })
	return out
}
