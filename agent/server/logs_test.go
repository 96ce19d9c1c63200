package server

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
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
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const logLines = `2026-01-01T00:00:01.000000000Z stdout F one
2026-01-01T00:00:02.000000000Z stderr F two
2026-01-01T00:00:03.000000000Z stdout F three
`

// withLogs gives the pod's containers logs.
func withLogs(t *testing.T, f *fixture) *rig {
	t.Helper()
	r := start(t, f)
	dir := filepath.Join(r.logs, "default_web-node_u1", "main")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "0.log"), []byte(logLines), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(filepath.Dir(r.logs), "secret")
	if err := os.WriteFile(secret, []byte(logLines), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "link.log")); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	running := runtimeapi.ContainerState_CONTAINER_RUNNING
	f.statuses = map[string]*runtimeapi.ContainerStatus{
		"id-main":   {State: running, LogPath: filepath.Join(dir, "0.log")},
		"id-again":  {State: running, LogPath: filepath.Join(dir, "link.log")},
		"id-before": {State: running, LogPath: secret},
	}
	return r
}

func TestLogs(t *testing.T) {
	r := withLogs(t, &fixture{})
	for query, want := range map[string]string{
		"":                                "one\ntwo\nthree\n",
		"?tailLines=1":                    "three\n",
		"?tail=2":                         "two\nthree\n",
		"?tailLines=0":                    "",
		"?limitBytes=5":                   "one\nt",
		"?timestamps=true&tailLines=1":    "2026-01-01T00:00:03.000000000Z three\n",
		"?sinceTime=2026-01-01T00:00:02Z": "two\nthree\n",
		"?sinceSeconds=1":                 "",
		"?stream=Stderr":                  "two\n",
	} {
		if code, text := r.ask(t, "GET", "/containerLogs/default/web-node/main"+query, nil); code != 200 ||
			text != want {
			t.Errorf("%s: %d %q, want %q", query, code, text, want)
		}
	}
	for what, path := range map[string]string{
		"a link":                    "again",
		"a file beside the log dir": "again?previous=true",
	} {
		if code, text := r.ask(t, "GET", "/containerLogs/default/web-node/"+path, nil); code == 200 ||
			strings.Contains(text, "three") {
			t.Errorf("%s was read: %d %q", what, code, text)
		}
	}
}

func TestFollowedLog(t *testing.T) {
	f := &fixture{}
	r := withLogs(t, f)
	followed(t, f, r.http, "http://berth")
}

// TestFollowedLogOverHTTP2 follows a log on the API's port, where answers are written by another
// part of net/http.
func TestFollowedLogOverHTTP2(t *testing.T) {
	f := &fixture{}
	s := withLogs(t, f).server
	s.deps.Guard, s.cfg.Debugging = &doorkeeper{}, true
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	followed(t, f, &http.Client{Transport: transport}, "https://"+serveAPI(t, s, serverTLS(t)))
}

// followed checks that a followed log is told line by line, until its container ends.
func followed(t *testing.T, f *fixture, client *http.Client, server string) {
	t.Helper()
	resp, err := client.Get(server + "/containerLogs/default/web-node/main?follow=true&tailLines=1")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || line != "three\n" {
		t.Fatalf("%q %v", line, err)
	}
	log, err := os.OpenFile(f.statuses["id-main"].LogPath, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	fmt.Fprintln(log, "2026-01-01T00:00:04.000000000Z stdout F four")
	if line, err := lines.ReadString('\n'); err != nil || line != "four\n" {
		t.Fatalf("%q %v", line, err)
	}
	f.mu.Lock()
	f.statuses["id-main"].State = runtimeapi.ContainerState_CONTAINER_EXITED
	f.mu.Unlock()
	if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
		t.Errorf("after the container's end: %q %v", rest, err)
	}
}

// TestFollowedLogOfEndingServer shows that a reader can tell a log that was broken off from one
// that ended.
func TestFollowedLogOfEndingServer(t *testing.T) {
	r := withLogs(t, &fixture{})
	resp, err := r.http.Get("http://berth/containerLogs/default/web-node/main?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := r.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the log seems to have ended")
	}
}

// TestLogsWithoutRuntime checks that logs are read from their files if the runtime does not answer.
func TestLogsWithoutRuntime(t *testing.T) {
	f := &fixture{}
	r := withLogs(t, f)
	f.mu.Lock()
	f.down = fmt.Errorf("connection refused: %w", errdefs.ErrUnavailable)
	f.mu.Unlock()
	const path = "/containerLogs/default/web-node/main"
	if code, text := r.ask(t, "GET", path+"?tailLines=1", nil); code != 200 || text != "three\n" {
		t.Errorf("%d %q", code, text)
	}
	if code, text := r.ask(t, "GET", path+"?follow=true", nil); code != 503 || !strings.Contains(text, "refused") {
		t.Errorf("followed: %d %q", code, text)
	}
	if code, text := r.ask(t, "GET", path+"?previous=true", nil); code == 200 {
		t.Errorf("an instance without a log: %d %q", code, text)
	}
}

// TestLogThatIsGone checks that the error says which logs there are.
func TestLogThatIsGone(t *testing.T) {
	f := &fixture{}
	r := withLogs(t, f)
	f.mu.Lock()
	delete(f.statuses, "id-before")
	delete(f.statuses, "id-again")
	f.mu.Unlock()
	for path, want := range map[string]string{
		"again?previous=true": "the log of container again before its last restart is not there any more: " +
			"that instance of it was removed; there are logs of: main",
		"again": "the log of container again is not there any more: that instance of it was removed; there are logs of: main",
		// the words of a kubelet, and nothing else
		"main?previous=true": `previous terminated container "main" in pod "web-node" not found`,
	} {
		if _, text := r.ask(t, "GET", "/containerLogs/default/web-node/"+path, nil); text != want {
			t.Errorf("%s: %q", path, text)
		}
	}
	earlier := filepath.Join(r.logs, "default_web-node_u1", "main", "1.log")
	if err := os.WriteFile(earlier, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, text := r.ask(t, "GET", "/containerLogs/default/web-node/again", nil); !strings.HasSuffix(text,
		"; there are logs of: main (and with -p)") {
		t.Errorf("%q", text)
	}
}

// A log that is not followed ends with an error for a caller that reads nothing of it.
func TestLogThatNobodyReads(t *testing.T) {
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		out := newLogWriter(w, false, 100*time.Millisecond)
		for {
			if _, err := out.Write(make([]byte, 64<<10)); err != nil {
				ended <- err
				return
			}
		}
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("it ends with %v", err)
	}
}

// progress is a ResponseWriter that keeps the last write deadline of a piece.
type progress struct {
	http.ResponseWriter
	deadline time.Time
}

func (p *progress) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() { // between two pieces
		p.deadline = at
	}
	return nil
}

// A caller that reads a long log slowly has the whole time for each piece; one that follows a log
// has any time.
func TestDeadlineOfLogsMoves(t *testing.T) {
	for _, within := range []time.Duration{0, plainTimeout} {
		synctest.Test(t, func(t *testing.T) {
			w := &progress{ResponseWriter: httptest.NewRecorder()}
			out := newLogWriter(w, within == 0, within)
			for range 3 {
				time.Sleep(plainTimeout / 2)
				if _, err := out.Write([]byte("a line")); err != nil {
					t.Fatal(err)
				}
				if left := time.Until(w.deadline); within > 0 && left != within || within == 0 && !w.deadline.IsZero() {
					t.Errorf("limit %s: the next piece has %s", within, left)
				}
			}
		})
	}
}
