package hostlogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for query, want := range map[string]string{
		"":             "",
		"tailLines=":   "",
		"query=":       "name a service or a file",
		"query=%20%20": "name a service or a file",
		"tailLines=10": "name a service or a file",
		"query=a&query=b&query=c&query=d&query=e": "must have at most 4",
		"query=a;reboot":                    "is not the name of a service",
		"query=$(reboot)":                   "is not the name of a service",
		"query=--file=x":                    "is not the name of a service",
		"query=-":                           "is not the name of a service",
		"query=" + strings.Repeat("a", 257): "is not the name of a service",
		"query=/a.log&query=/b.log":         "only one file",
		"query=/a.log&query=b":              "may not be asked for together",
		"query=/a.log&tailLines=1":          "served whole",
		"query=a&sinceTime=yesterday":       "RFC 3339",
		"query=a&tailLines=-1":              "from 0 to 100000",
		"query=a&tailLines=100001":          "from 0 to 100000",
		"query=a&tailLines=x":               "from 0 to 100000",
		"query=a&boot=1":                    "to 0",
		"query=a&pattern=(":                 "missing closing",
		"query=a&sinceTime=2026-01-02T00:00:00Z&untilTime=2026-01-01T00:00:00Z": "before sinceTime",
	} {
		values, err := url.ParseQuery(strings.ReplaceAll(query, ";", "%3B"))
		if err != nil {
			t.Fatal(err)
		}
		q, errs := Parse(values)
		switch {
		case want == "" && (q != nil || errs != nil):
			t.Errorf("%q: %v %v", query, q, errs)
		case want != "" && (len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), want)):
			t.Errorf("%q: %v, want %q", query, errs, want)
		}
	}
}

// rig is a handler of a directory and a journal.
type rig struct {
	t    *testing.T
	dir  string
	args [][]string
	*Handler
}

func newRig(t *testing.T, query bool) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	outside := t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(r.dir, "syslog"):     "of the system",
		filepath.Join(r.dir, "a.log"):      "of a",
		filepath.Join(r.dir, "b", "b.log"): "of b",
		filepath.Join(outside, "shadow"):   "secret",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(
		os.Symlink(filepath.Join(outside, "shadow"), filepath.Join(r.dir, "link")),
		os.Symlink("../../../../../../etc/passwd", filepath.Join(r.dir, "up")),
		os.Symlink("a.log", filepath.Join(r.dir, "inside")), os.Symlink(outside, filepath.Join(r.dir, "away")),
		unix.Mkfifo(filepath.Join(r.dir, "pipe"), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	r.Handler = New(Config{
		Dir:   r.dir,
		Query: query,
		Journal: func(_ context.Context, out io.Writer, args ...string) error {
			r.args = append(r.args, args)
			if slices.Contains(args, "--field=_SYSTEMD_UNIT") {
				_, err := io.WriteString(out, "containerd.service\ninit.scope\n")
				return err
			}
			if slices.Contains(args, "--grep=fail") {
				return errors.New("no entries")
			}
			_, err := fmt.Fprintln(out, "entries of", args[3:])
			return err
		},
	})
	return r
}

func (r *rig) get(path string) (int, string) {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}

func TestFiles(t *testing.T) {
	for _, query := range []bool{false, true} {
		r := newRig(t, query)
		for path, want := range map[string]string{
			"/logs/syslog":                      "200 of the system",
			"/logs/b/b.log":                     "200 of b",
			"/logs/inside":                      "200 of a",
			"/logs/":                            `200 <a href="a.log">a.log</a>`,
			"/logs/b/":                          `200 b.log`,
			"/logs/nope":                        "404 ",
			"/logs/link":                        "403 ",
			"/logs/up":                          "403 ",
			"/logs/away/shadow":                 "403 ",
			"/logs/pipe":                        "403 ",
			"/logs/../../../../etc/passwd":      "404 ",
			"/logs/%2e%2e/%2e%2e/etc/passwd":    "404 ",
			"/logs/b/%2e%2e/%2e%2e/%2e%2e/etc/": "404 ",
		} {
			code, text := r.get(path)
			wantCode, wantText, _ := strings.Cut(want, " ")
			if fmt.Sprint(code) != wantCode || !strings.Contains(text, wantText) || strings.Contains(text, "secret") ||
				strings.Contains(text, "root:") {
				t.Errorf("%s: %d %q, want %s", path, code, text, want)
			}
		}
	}
}

func TestQueries(t *testing.T) {
	r := newRig(t, true)
	for path, want := range map[string]string{
		"/logs/?query=containerd":                  "200 entries of [--unit=containerd]\n",
		"/logs/?query=a":                           "200 of a",
		"/logs/?query=b":                           "200 of b",
		"/logs/?query=syslog&query=containerd":     "200 entries of [--unit=containerd]\nof the system",
		"/logs/?query=nope":                        "200 \nno log of nope: neither the journal nor a file in ",
		"/logs/?query=link":                        "200 \nno log of link: ",
		"/logs/?query=a&tailLines=5":               "200 \nthe journal does not know a: ",
		"/logs/?query=/b/b.log":                    "200 of b",
		"/logs/?query=/syslog":                     "200 of the system",
		"/logs/?query=/../../../etc/passwd":        "400 ",
		"/logs/?query=/link":                       "400 ",
		"/logs/?query=/b":                          "400 ",
		"/logs/?query=/pipe":                       "400 ",
		"/logs/?query=a%3Breboot":                  "400 ",
		"/logs/?query=containerd&pattern=fail":     "200 \nreading the journal of containerd: no entries\n",
		"/logs/?query=containerd&boot=-1":          "200 entries of [--unit=containerd --boot=-1]\n",
		"/logs/?query=containerd&tailLines=5":      "200 entries of [--pager-end --lines=5 --unit=containerd]\n",
		"/logs/?query=containerd&pattern=a%7Cb+-x": "200 entries of [--unit=containerd --grep=a|b -x]\n",
		"/logs/?query=containerd&sinceTime=2026-01-02T03:04:05%2B01:00&untilTime=2026-01-03T00:00:00Z": "200 " +
			"entries of [--since=2026-01-02 02:04:05 UTC --until=2026-01-03 00:00:00 UTC --unit=containerd]\n",
	} {
		code, text := r.get(path)
		wantCode, wantText, _ := strings.Cut(want, " ")
		if fmt.Sprint(code) != wantCode || !strings.HasPrefix(text, wantText) || strings.Contains(text, "secret") ||
			strings.Contains(text, "root:") {
			t.Errorf("%s: %d %q, want %s", path, code, text, want)
		}
	}
	// Without enableSystemLogQuery nobody runs journalctl.
	off := newRig(t, false)
	if code, text := off.get("/logs/?query=containerd"); code != 200 || !strings.Contains(text, "a.log") ||
		len(off.args) > 0 {
		t.Errorf("switched off: %d %q %v", code, text, off.args)
	}
}

// TestSlowReaders has readers that read nothing of a large file, or of a journal without an end:
// their requests end.
func TestSlowReaders(t *testing.T) {
	for name, tc := range map[string]struct {
		path         string
		query, piece time.Duration
	}{
		"a file":    {"/logs/large", time.Hour, time.Millisecond},
		"a journal": {"/logs/?query=containerd", time.Millisecond, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, true)
			r.queryTimeout, r.pieceTimeout = tc.query, tc.piece
			if err := os.WriteFile(filepath.Join(r.dir, "large"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(filepath.Join(r.dir, "large"), 1<<30); err != nil {
				t.Fatal(err)
			}
			r.cfg.Journal = func(_ context.Context, out io.Writer, args ...string) (err error) {
				if slices.Contains(args, "--field=_SYSTEMD_UNIT") {
					_, err := io.WriteString(out, "containerd.service\n")
					return err
				}
				for piece := make([]byte, 1<<20); err == nil; {
					_, err = out.Write(piece) // journalctl is killed, but its output waits for the reader
				}
				return err
			}
			ended := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				defer close(ended)
				r.ServeHTTP(w, req)
			}))
			defer server.Close()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", tc.path)
			<-ended
		})
	}
}
