package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/server/hostlogs"
	"github.com/berthd/berth/client/api"
)

// TestHugeRequests sends more than anybody may, also disguised as what has no body.
func TestHugeRequests(t *testing.T) {
	r := start(t, &fixture{})
	t.Setenv("TMPDIR", t.TempDir()) // net/http would put the parts of a form there
	form := "--b\r\nContent-Disposition: form-data; name=f; filename=f\r\n\r\n"
	for _, to := range []struct{ method, path string }{
		{"POST", "/run/default/web-node/main?cmd=ls"},
		{"POST", "/stats/summary"},
		{"PUT", "/debug/flags/v"},
		{"POST", api.PathPods + "/default/web-node/" + api.EphemeralContainers},
	} {
		for _, header := range []string{"", "Upgrade: x", "Connection: upgrade\r\nUpgrade: websocket"} {
			conn, err := net.Dial("unix", r.socket)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"+
					"Content-Type: multipart/form-data; boundary=b\r\n%s\r\n", to.method, to.path, 64<<20,
					strings.ReplaceAll(header+"\r\n", "\r\n\r\n", "\r\n"))
				_, _ = io.WriteString(conn, form)
				_, _ = io.Copy(conn, io.LimitReader(zeros{}, 64<<20))
			}()
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Errorf("%s %s with %q: %v %v", to.method, to.path, header, resp, err)
			}
			conn.Close()
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("on disk: %v %v", left, err)
	}
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		_, _ = fmt.Fprintf(conn, "GET /pods HTTP/1.1\r\nHost: x\r\nA: %s\r\n\r\n", strings.Repeat("a", 1<<20))
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("huge header: %v %v", resp, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestSlowBodies has more callers than there are places, which send no byte of their bodies: they
// take no place from others, for as long as they are waited for.
func TestSlowBodies(t *testing.T) {
	r := start(t, &fixture{})
	r.server.bodyTimeout = time.Hour
	for range maxQuick + maxSlow {
		conn, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, " 100 ") {
			t.Fatalf("the body is not awaited: %q, %v", line, err)
		}
	}
	for range 3 {
		if code, text := r.ask(t, "GET", "/pods", nil); code != 200 {
			t.Errorf("beside slow bodies: %d %q", code, text)
		}
	}
}

// TestSlowBodyEnds has a caller that sends no byte of its body: it is not waited for.
func TestSlowBodyEnds(t *testing.T) {
	r := start(t, &fixture{})
	r.server.bodyTimeout = 50 * time.Millisecond
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /pods HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Errorf("a slow body: %v %v", resp, err)
	}
}

// TestBusy fills all places for slow requests with requests that hang on the runtime: more of them
// are refused, and whatever needs neither the runtime nor the disk is still answered.
func TestBusy(t *testing.T) {
	f := &fixture{block: make(chan struct{}), entered: make(chan struct{}, maxSlow), waits: time.Second}
	r := start(t, f)
	var wg sync.WaitGroup
	for range maxSlow {
		wg.Go(func() {
			if code, text := r.ask(t, "GET", "/berth/v1/images", nil); code != 200 {
				t.Errorf("images: %d %q", code, text)
			}
		})
	}
	for range maxSlow {
		<-f.entered
	}
	if code, text := r.ask(t, "GET", "/runningpods/", nil); code != http.StatusTooManyRequests {
		t.Errorf("one too many: %d %q", code, text)
	}
	for _, path := range []string{"/healthz", "/pods", api.PathPods, api.PathStatus, api.PathNotes, api.PathEvents} {
		if code, _ := r.ask(t, "GET", path, nil); code != 200 {
			t.Errorf("%s: %d", path, code)
		}
	}
	close(f.block)
	wg.Wait()
	if code, _ := r.ask(t, "GET", "/runningpods/", nil); code != 200 {
		t.Errorf("afterwards: %d", code)
	}
}

// TestSlowReadersOfNodeLogs has more readers of the node's logs than anything that lasts may have,
// which read nothing: some are refused, and container logs are still read.
func TestSlowReadersOfNodeLogs(t *testing.T) {
	r := start(t, &fixture{})
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "large"), nil, 0o600),
		os.Truncate(filepath.Join(dir, "large"), 1<<30), // sparse
		os.MkdirAll(filepath.Join(r.logs, "default_web-node_u1", "main"), 0o700),
		os.WriteFile(filepath.Join(r.logs, "default_web-node_u1", "main", "0.log"), []byte(line(1, "text")), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	r.statuses = map[string]*runtimeapi.ContainerStatus{
		"id-main": {LogPath: filepath.Join(r.logs, "default_web-node_u1", "main", "0.log")},
	}
	r.server.hostLogs = hostlogs.New(hostlogs.Config{Dir: dir})
	r.run(t)
	answered := map[int]int{}
	for range maxLasting {
		conn, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /logs/large HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 16), nil)
		if err != nil {
			t.Fatal(err)
		}
		answered[resp.StatusCode]++
	}
	if answered[200] < maxOfKind[readingNode] || answered[http.StatusTooManyRequests] == 0 {
		t.Errorf("answered, by code: %v", answered)
	}
	if code, text := r.ask(t, "GET", "/containerLogs/default/web-node/main", nil); code != 200 || text != "text\n" {
		t.Errorf("a container's log: %d %q", code, text)
	}
}
