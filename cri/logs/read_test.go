package logs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// stamp returns the n-th time of the logs in these tests.
func stamp(n int) string {
	return time.Date(2026, 1, 2, 3, 4, n, 5, time.UTC).Format(time.RFC3339Nano)
}

// write makes a log file with this text, in which $0, $1 … stand for times.
func write(t *testing.T, text string) File {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "app"), 0o755); err != nil {
		t.Fatal(err)
	}
	for n := range 10 {
		text = strings.ReplaceAll(text, fmt.Sprintf("$%d", n), stamp(n))
	}
	if err := os.WriteFile(filepath.Join(root, "app/0.log"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return File{Root: root, Path: "app/0.log"}
}

// collect reads a log and returns both streams.
func collect(t *testing.T, file File, opts Options) (stdout, stderr string) {
	t.Helper()
	var o, e bytes.Buffer
	if err := Read(t.Context(), Output{&o, &e}, file, opts, Deps{}); err != nil {
		t.Fatal(err)
	}
	return o.String(), e.String()
}

func TestRead(t *testing.T) {
	const three = "$0 stdout F one\n$1 stderr F two\n$2 stdout F three\n"
	at := func(n int) time.Time {
		when, _ := time.Parse(time.RFC3339Nano, stamp(n))
		return when
	}
	for name, c := range map[string]struct {
		text           string
		opts           Options
		stdout, stderr string
	}{
		"all":                      {three, Options{}, "one\nthree\n", "two\n"},
		"nothing":                  {"", Options{}, "", ""},
		"tail":                     {three, Options{Tail: ptr.To[int64](2)}, "three\n", "two\n"},
		"tail of more than it has": {three, Options{Tail: ptr.To[int64](9)}, "one\nthree\n", "two\n"},
		"tail 0":                   {three, Options{Tail: ptr.To[int64](0)}, "", ""},
		"negative tail":            {three, Options{Tail: ptr.To[int64](-1)}, "one\nthree\n", "two\n"},
		"tail with a torn end":     {three + "$3 stdout F four", Options{Tail: ptr.To[int64](2)}, "three\n", "two\n"},
		"torn end":                 {three + "$3 stdout F four", Options{}, "one\nthree\nfour", "two\n"},
		"since":                    {three, Options{Since: at(1)}, "three\n", "two\n"},
		"since later":              {three, Options{Since: at(3)}, "", ""},
		"limit in a line":          {three, Options{LimitBytes: ptr.To[int64](6)}, "one\n", "tw"},
		"limit at a line's end":    {three, Options{LimitBytes: ptr.To[int64](8)}, "one\n", "two\n"},
		"limit 0":                  {three, Options{LimitBytes: ptr.To[int64](0)}, "", ""},
		"limit counts what is read": {
			three, Options{LimitBytes: ptr.To[int64](5), Stream: v1.LogStreamStdout}, "one\nt", "",
		},
		"one stream":   {three, Options{Stream: v1.LogStreamStderr}, "", "two\n"},
		"both streams": {three, Options{Stream: v1.LogStreamAll}, "one\nthree\n", "two\n"},
		"timestamps": {
			three,
			Options{Timestamps: true},
			"2026-01-02T03:04:00.000000005Z one\n2026-01-02T03:04:02.000000005Z three\n",
			"2026-01-02T03:04:01.000000005Z two\n",
		},
		"timestamps count": {three, Options{Timestamps: true, LimitBytes: ptr.To[int64](4)}, "2026", ""},
		"timestamps keep their zone and get a fixed width": {
			"2026-01-02T03:04:05+02:00 stdout F a\n2026-01-02T03:04:05.5+02:00 stdout F b\n",
			Options{Timestamps: true},
			"2026-01-02T03:04:05.000000000+02:00 a\n2026-01-02T03:04:05.500000000+02:00 b\n", "",
		},
		"parts": {
			"$0 stdout P a\n$1 stdout P b\n$2 stdout F c\n$3 stdout F d\n", Options{}, "abc\nd\n", "",
		},
		"parts have one timestamp": {
			"$0 stdout P a\n$1 stdout F b\n", Options{Timestamps: true}, "2026-01-02T03:04:00.000000005Z ab\n", "",
		},
		"an empty part ends a line": {
			"$0 stdout P \n$1 stdout F b\n",
			Options{Timestamps: true},
			"2026-01-02T03:04:00.000000005Z 2026-01-02T03:04:01.000000005Z b\n", "",
		},
		"tail counts parts": {
			"$0 stdout P a\n$1 stdout P b\n$2 stdout F c\n", Options{Tail: ptr.To[int64](2)}, "bc\n", "",
		},
		"more tags":       {"$0 stdout F:x:y a\n$1 stdout P:x b\n$2 stdout Z c\n", Options{}, "a\nbc\n", ""},
		"empty line":      {"$0 stdout F \n", Options{}, "\n", ""},
		"spaces are kept": {"$0 stdout F   a  b \r\n", Options{}, "  a  b \r\n", ""},
		"garbage": {
			"\n \nnonsense\n$0\n$0 stdout\n$0 stdout F\n$0 stdlog F a\nx stdout F a\n\x00\xff\n" +
				"{\"log\":\"a\\n\",\"stream\":\"stdout\"}\n$1 stdout F good\n",
			Options{},
			"good\n", "",
		},
		"tail over garbage": {
			"$0 stdout F one\nnonsense\n$1 stdout F two\n", Options{Tail: ptr.To[int64](2)}, "two\n", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr := collect(t, write(t, c.text), c.opts)
			if diff := cmp.Diff([]string{c.stdout, c.stderr}, []string{stdout, stderr}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadLongLines(t *testing.T) {
	long := strings.Repeat("0123456789", 3*pieceSize/10)
	file := write(t, "$0 stdout F "+long+"\n$1 stdout P "+long+"\n$2 stdout F "+long+"\n"+long+"\n$3 stdout F end\n")
	if stdout, _ := collect(t, file, Options{}); stdout != long+"\n"+long+long+"\nend\n" {
		t.Errorf("got %d bytes, want %d", len(stdout), 3*len(long)+6)
	}
	if stdout, _ := collect(t, file, Options{Tail: ptr.To[int64](3)}); stdout != long+"\nend\n" {
		t.Errorf("tail gave %d bytes, want %d", len(stdout), len(long)+5)
	}
	stdout, _ := collect(t, file, Options{LimitBytes: ptr.To[int64](pieceSize + 1), Timestamps: true})
	if want := "2026-01-02T03:04:00.000000005Z " + long; stdout != want[:pieceSize+1] {
		t.Errorf("limit gave %d bytes, want %d", len(stdout), pieceSize+1)
	}
}

func TestNilStreamsAreLeftOut(t *testing.T) {
	var out bytes.Buffer
	file := write(t, "$0 stdout F one\n$1 stderr F two\n")
	if err := Read(t.Context(), Output{Stderr: &out}, file, Options{LimitBytes: ptr.To[int64](4)},
		Deps{}); err != nil || out.String() != "two\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestReadStopsWithItsContextAndItsReader(t *testing.T) {
	file := write(t, "$0 stdout F one\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Read(ctx, Output{}, file, Options{}, Deps{}); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	_, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Read(t.Context(), Output{Stdout: w}, file, Options{}, Deps{}); !errors.Is(err, os.ErrClosed) {
		t.Errorf("with a reader that is gone: %v", err)
	}
}

func TestReadRefusesWhatIsNoLog(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte(stamp(0)+" stdout F secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root := write(t, "$0 stdout F one\n").Root
	for name, make := range map[string]func(path string) error{
		"link":      func(p string) error { return os.Symlink(outside, p) },
		"near":      func(p string) error { return os.Symlink("app/0.log", p) },
		"linkdir":   func(p string) error { return os.Symlink("app", p) },
		"pipe":      func(p string) error { return unix.Mkfifo(p, 0o600) },
		"directory": func(p string) error { return os.Mkdir(p, 0o700) },
	} {
		if err := make(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]error{
		"link": ErrEscape, "near": ErrEscape, "linkdir/0.log": ErrEscape,
		"../" + filepath.Base(root) + "/app/0.log": ErrEscape,
		filepath.Join(root, "app/0.log"):           ErrEscape, "": ErrEscape, ".": ErrEscape, "..": ErrEscape,
		"pipe": ErrNotRegular, "directory": ErrNotRegular, "none": fs.ErrNotExist, "none/0.log": fs.ErrNotExist,
	} {
		var out bytes.Buffer
		err := Read(t.Context(), Output{&out, &out}, File{Root: root, Path: path}, Options{}, Deps{})
		if !errors.Is(err, want) || out.Len() > 0 {
			t.Errorf("%q: got %q and %v, want %v", path, out.String(), err, want)
		}
	}
	if err := Read(t.Context(), Output{}, File{Root: outside, Path: "x"}, Options{}, Deps{}); err == nil {
		t.Error("a root that is a file was taken")
	}
}

func TestOpenBeneath(t *testing.T) {
	root := write(t, "x\n").Root
	if err := errors.Join(os.Symlink("app", filepath.Join(root, "linkdir")),
		os.Symlink("0.log", filepath.Join(root, "app/link"))); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for path, want := range map[string]error{
		"app/0.log": nil, "app": nil, ".": nil, "app/link": ErrEscape, "linkdir/0.log": ErrEscape, "../x": ErrEscape,
		"none": unix.ENOENT, "app/0.log/x": unix.ENOTDIR,
	} {
		got, err := openBeneath(fd, path, unix.O_RDONLY)
		if err == nil {
			_ = unix.Close(got)
		}
		if !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
}

func TestOptionsFrom(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before := metav1.NewTime(now.Add(-time.Hour))
	got := OptionsFrom(&v1.PodLogOptions{
		Follow: true, TailLines: ptr.To[int64](3), LimitBytes: ptr.To[int64](9), Timestamps: true,
		SinceSeconds: ptr.To[int64](60), Stream: ptr.To("Stdout"),
	}, now)
	want := Options{
		Follow: true, Tail: ptr.To[int64](3), LimitBytes: ptr.To[int64](9), Timestamps: true,
		Since: now.Add(-time.Minute), Stream: "Stdout",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := OptionsFrom(&v1.PodLogOptions{SinceTime: &before}, now); !got.Since.Equal(before.Time) {
		t.Errorf("since is %s", got.Since)
	}
}
