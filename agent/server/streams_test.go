package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streamServer is a runtime's streaming server that upgrades and then sends back what it gets.
func streamServer(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	if handler == nil {
		handler = func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.Copy(conn, rw)
		}
	}
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s
}

// upgrade asks for a stream and returns the connection and the answer.
func (r *rig) upgrade(t *testing.T, method, path string) (net.Conn, *http.Response, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", method, path)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return conn, resp, in
}

func TestStreamsGoThrough(t *testing.T) {
	f := &fixture{sandboxes: []*runtimeapi.PodSandbox{{Id: "s"}}}
	f.execURL = streamServer(t, nil).URL + "/exec/token"
	r := start(t, f)
	for _, path := range []string{
		"/exec/default/web-node/main?command=ls&command=-l&input=1&output=1",
		"/exec/default/web-node/u1/main?command=ls&output=1",
		"/attach/default/web-node/main?output=1",
		"/portForward/default/web-node",
		"/portForward/default/web-node/u1?port=80,81",
	} {
		conn, resp, in := r.upgrade(t, "POST", path)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			text, _ := io.ReadAll(resp.Body)
			t.Errorf("%s: %s %s", path, resp.Status, text)
			continue
		}
		fmt.Fprintln(conn, "there and back")
		if line, err := in.ReadString('\n'); err != nil || line != "there and back\n" {
			t.Errorf("%s: %q %v", path, line, err)
		}
	}
	f.mu.Lock()
	first := f.execs[0]
	f.mu.Unlock()
	if first.ContainerId != "id-main" || strings.Join(first.Cmd, " ") != "ls -l" || !first.Stdin || !first.Stdout ||
		first.Stderr || first.Tty {
		t.Errorf("exec request: %v", first)
	}
	// The connections are still open: the server's end must close them.
	if err := r.stop(); err != nil {
		t.Errorf("Run: %v", err)
	}
}

// Whether a container has a terminal is its pod's to say: a runtime that is asked for a standard
// error which is none waits for its end for ever.
func TestAttachGoesByTheContainersTerminal(t *testing.T) {
	f := &fixture{execURL: streamServer(t, nil).URL + "/attach/token"}
	r := start(t, f)
	for _, tc := range []struct {
		path string
		code int
		tty  bool
	}{
		{"/attach/default/web-node/shell?input=1&output=1&tty=1", 101, true},
		{"/attach/default/web-node/shell?input=1&output=1&error=1&tty=1", 101, true},
		{"/attach/default/web-node/shell?output=1", 101, true},
		{"/attach/default/web-node/shell?input=1&output=1&error=1", 400, true},
		{"/attach/default/web-node/main?output=1&error=1", 101, false},
		{"/attach/default/web-node/main?output=1&tty=1", 101, false},
	} {
		_, resp, _ := r.upgrade(t, "POST", tc.path)
		if resp.StatusCode != tc.code {
			t.Errorf("%s: %s", tc.path, resp.Status)
		}
		f.mu.Lock()
		asked := f.attached
		f.attached = nil
		f.mu.Unlock()
		if tc.code != http.StatusSwitchingProtocols {
			text, _ := io.ReadAll(resp.Body)
			if len(asked) != 0 || !strings.Contains(string(text), "tty and stderr cannot both be true") {
				t.Errorf("%s: %s; the runtime was asked for %v", tc.path, text, asked)
			}
		} else if len(asked) != 1 || asked[0].Tty != tc.tty || asked[0].Tty && asked[0].Stderr {
			t.Errorf("%s: the runtime was asked for %v", tc.path, asked)
		}
	}
}

func TestStreamsThatAreRefused(t *testing.T) {
	elsewhere := streamServer(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	redirect := streamServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusFound)
	})
	refuses := streamServer(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "token unknown", http.StatusNotFound)
	})
	for name, tc := range map[string]struct {
		url, path string
		code      int
		want      string
	}{
		"not loopback": {"http://192.0.2.1:1/exec/x", "", 502, "only loopback"},
		"a name":       {"http://localhost.example.com:1/exec/x", "", 502, "only loopback"},
		"user in url":  {"http://127.0.0.1@192.0.2.1/exec/x", "", 502, "only loopback"},
		"other scheme": {"file:///etc/passwd", "", 502, "only loopback"},
		"nonsense":     {"http://[::1", "", 502, "URL"},
		"nobody there": {"http://127.0.0.1:1/exec/x", "", 502, "opening the stream"},
		"redirect":     {redirect.URL, "", 502, "302"},
		"runtime's no": {refuses.URL, "", 404, "token unknown"},
		"no command":   {refuses.URL, "/exec/default/web-node/main?output=1", 400, "at least one command"},
		"wrong uid":    {refuses.URL, "/exec/default/web-node/u9/main?output=1&command=ls", 404, "does not exist"},
		"not running": {
			refuses.URL, "/exec/default/web-node/waits?output=1&command=ls", 400, "it does not run in pod",
		},
		"no sandbox":    {refuses.URL, "/portForward/default/web-node", 400, "no sandbox"},
		"unix, nobody":  {"unix:///nonexistent/s:/exec/x", "", 502, "opening the stream"},
		"unix, no path": {"unix:///nonexistent/s", "", 502, "only loopback"},
	} {
		f := &fixture{execURL: tc.url}
		r := start(t, f)
		path := tc.path
		if path == "" {
			path = "/exec/default/web-node/main?command=ls&output=1"
		}
		_, resp, _ := r.upgrade(t, "POST", path)
		text, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tc.code || !strings.Contains(string(text), tc.want) {
			t.Errorf("%s: %d %s, want %d %q", name, resp.StatusCode, text, tc.code, tc.want)
		}
	}
}
