package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// agent serves on a unix socket.
func agent(t *testing.T, handler http.HandlerFunc) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "cl") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: handler}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	c := New(filepath.Join(dir, "s"))
	t.Cleanup(func() {
		c.Close()
		s.Close()
		<-ended
		os.RemoveAll(dir)
	})
	return c
}

func TestNobodyThere(t *testing.T) {
	gone := agent(t, nil)
	for name, c := range map[string]*Client{"no socket": New("/nonexistent/s"), "default": New("")} {
		if name == "default" && c.socket != DefaultSocket {
			t.Errorf("default socket: %s", c.socket)
			continue
		}
		if name == "default" {
			continue // an agent may run on this machine
		}
		_, err := c.Pods(t.Context())
		var not *NotRunningError
		if !errors.As(err, &not) || !strings.Contains(err.Error(), startHint(unitDirs())) {
			t.Errorf("%s: %v", name, err)
		}
		if err := c.Exec(t.Context(), Target{"a", "b", "c"}, []string{"ls"}, Stdio{Stdout: os.Stdout}); !errors.As(err,
			&not) {
			t.Errorf("%s: exec: %v", name, err)
		}
	}
	gone.Close()
}

// TestHints checks that the hints name systemd only if it has berth's unit.
func TestHints(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(with, "berth.service"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		dirs       []string
		start, log string
	}{
		{[]string{without, "/nonexistent"}, "`berth agent`", "see its log"},
		{[]string{without, with}, "`systemctl start berth`", "see its log with `journalctl -u berth`"},
	} {
		if start, log := startHint(tc.dirs), logHint(tc.dirs); start != tc.start || log != tc.log {
			t.Errorf("%q: %q %q", tc.dirs, start, log)
		}
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    string
	}{
		"status": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"kind":"Status","message":"no such pod"}`)
		}, "no such pod"},
		"text": {
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) },
			"500 Internal Server Error: broken",
		},
		"no JSON": {
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "reading the agent's answer",
		},
		"cut off": {
			func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"items":[`); panic(http.ErrAbortHandler) },
			"EOF",
		},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"redirects": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		}, "302"},
	} {
		c := agent(t, tc.handler)
		if _, err := c.Pods(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

func TestAgentThatHangs(t *testing.T) {
	entered := make(chan struct{})
	c := agent(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := c.Pods(ctx)
		failed <- err
	}()
	<-entered
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestWatchOfAgentThatEnds(t *testing.T) {
	c := agent(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, ": alive\n\ndata: {\"message\":\"one\"}\n\n")
	})
	var got []string
	err := c.WatchEvents(t.Context(), func(e v1.Event) error {
		got = append(got, e.Message)
		return nil
	})
	if !errors.Is(err, ErrStreamEnded) || len(got) != 1 || got[0] != "one" {
		t.Errorf("%v %q", err, got)
	}
	stop := errors.New("enough")
	if err := c.WatchEvents(t.Context(), func(v1.Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

// TestSocketsThatAreNone checks the errors of paths that cannot be a socket.
func TestSocketsThatAreNone(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                                dir + " is not a socket",
		"/" + strings.Repeat("x", 107):     "the path of a socket has at most 107 bytes, and this one has 108: /xxx",
		"unix:///nonexistent/of-a-url":     "no answer at /nonexistent/of-a-url",
		"unix:///" + filepath.Base("none"): "no answer at /none",
	} {
		if _, err := New(path).Pods(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestHalfTakenPorts checks that a port of localhost that another program has in one address family
// is named.
func TestHalfTakenPorts(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).String()
	_, port, _ := net.SplitHostPort(taken)
	f := Forward{Addresses: []string{"localhost"}, Ports: []string{port + ":80", ":80"}}
	if got := halfTaken(t.Context(), f); !slices.Equal(got, []string{taken}) {
		t.Errorf("got %q, want %q", got, taken)
	}
	if got := halfTaken(t.Context(), Forward{Addresses: []string{"127.0.0.1"}, Ports: f.Ports}); len(got) > 0 {
		t.Errorf("an address of one family: %q", got)
	}
	six, err := net.Listen("tcp6", net.JoinHostPort("::1", port))
	if err != nil {
		t.Skip("no IPv6 here:", err)
	}
	defer six.Close()
	if got := halfTaken(t.Context(), f); len(got) > 0 {
		t.Errorf("the library reports a port that is taken in both families, and so does this: %q", got)
	}
}
