package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need the hour that comes twice on every machine

	"github.com/google/go-cmp/cmp"
)

func TestNextStem(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 999, time.UTC)
	for name, c := range map[string]struct {
		newest string
		now    time.Time
		want   string
	}{
		"first":             {"", at, "0.log.20260102-030405"},
		"later":             {"0.log.20260102-030404", at, "0.log.20260102-030405"},
		"twice in a second": {"0.log.20260102-030405", at, "0.log.20260102-030406"},
		"clock put back":    {"0.log.20270101-000000", at, "0.log.20270101-000001"},
		"over midnight":     {"0.log.20260102-235959", at, "0.log.20260103-000000"},
		"somebody else's":   {"0.log.old", at, "0.log.20260102-030405"},
		"the hour that is twice": {
			"0.log.20261025-025959", time.Date(2026, 10, 25, 1, 30, 0, 0, time.UTC).In(berlin), "0.log.20261025-030000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nextStem("0.log", c.newest, c.now); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// directory makes a log directory with these files.
func directory(t *testing.T, files map[string]string) (*Directory, string) {
	t.Helper()
	root := t.TempDir()
	path := filepath.Join(root, "app")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(path, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	d, err := OpenDirectory(root, "app")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, path
}

// ls returns the names of everything in a directory.
func ls(t *testing.T, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestList(t *testing.T) {
	d, path := directory(t, map[string]string{
		"0.log": "1", "0.log.20260102-030405": "22", "0.log.20260102-030404.gz": "333",
		"0.log.20260102-030405.tmp": "4444",
		"12.log":                    "", "notes.txt": "x", "x.log": "x", ".log": "x", "0.logs": "x",
	})
	if err := errors.Join(os.Symlink("0.log", filepath.Join(path, "3.log")),
		os.Mkdir(filepath.Join(path, "4.log"), 0o700)); err != nil {
		t.Fatal(err)
	}
	got, err := d.List()
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{
		{Name: "0.log", Base: "0.log", Size: 1},
		{Name: "0.log.20260102-030404.gz", Base: "0.log", Rotated: true, Size: 3},
		{Name: "0.log.20260102-030405", Base: "0.log", Rotated: true, Size: 2},
		{Name: "0.log.20260102-030405.tmp", Base: "0.log", Rotated: true, Temporary: true, Size: 4},
		{Name: "12.log", Base: "12.log", Attempt: 12},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, compressed := range []bool{false, true, false, false, false} {
		if got[i].Compressed() != compressed {
			t.Errorf("%s: compressed is %v", got[i].Name, !compressed)
		}
	}
}

func TestRotateAndRestore(t *testing.T) {
	d, path := directory(t, map[string]string{"0.log": "one"})
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	name, err := d.Rotate("0.log", at)
	if err != nil || name != "0.log.20260102-030405" {
		t.Fatalf("%q, %v", name, err)
	}
	if restored, err := d.Restore("0.log", name); !restored || err != nil {
		t.Fatalf("not taken back: %v", err)
	}
	if name, err = d.Rotate("0.log", at); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, "0.log"), []byte("two"), 0o640); err != nil {
		t.Fatal(err)
	}
	if restored, err := d.Restore("0.log", name); restored || err != nil {
		t.Errorf("a log that the runtime reopened was overwritten: %v", err)
	}
	if name, err = d.Rotate("0.log", at); err != nil || name != "0.log.20260102-030406" {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := d.Rotate("0.log", at); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
	if diff := cmp.Diff([]string{"0.log.20260102-030405", "0.log.20260102-030406"}, ls(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCompress(t *testing.T) {
	text := strings.Repeat(stamp(0)+" stdout F one\n", 1000)
	d, path := directory(t, map[string]string{
		"0.log": "x", "0.log.20260102-030405": text, "0.log.20260102-030405.tmp": "left by a crash",
	})
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)
	if err := os.Chtimes(filepath.Join(path, "0.log.20260102-030405"), at, at); err != nil {
		t.Fatal(err)
	}
	if err := d.Compress(t.Context(), "0.log.20260102-030405"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"0.log", "0.log.20260102-030405.gz"}, ls(t, path)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	f, err := os.Open(filepath.Join(path, "0.log.20260102-030405.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.ModTime().Equal(at) || info.Mode().Perm() != 0o640 {
		t.Errorf("time %v, mode %v, %v", info.ModTime(), info.Mode(), err)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(z); err != nil || string(got) != text {
		t.Errorf("it has %d bytes of %d, %v", len(got), len(text), err)
	}
}

func TestFailedCompressionLeavesThePart(t *testing.T) {
	const part = "0.log.20260102-030405"
	for name, c := range map[string]struct {
		prepare func(t *testing.T, path string) context.Context
		want    error
		left    []string
	}{
		"given up": {func(t *testing.T, _ string) context.Context {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx
		}, context.Canceled, []string{part}},
		"removed": {func(t *testing.T, path string) context.Context {
			if err := os.Remove(filepath.Join(path, part)); err != nil {
				t.Fatal(err)
			}
			return t.Context()
		}, fs.ErrNotExist, []string{}},
		"a link": {func(t *testing.T, path string) context.Context {
			if err := errors.Join(os.Remove(filepath.Join(path, part)),
				os.Symlink("/etc/passwd", filepath.Join(path, part))); err != nil {
				t.Fatal(err)
			}
			return t.Context()
		}, ErrEscape, []string{part}},
		"a link where it writes": {func(t *testing.T, path string) context.Context {
			// The link is removed as a leftover file, and never followed.
			if err := os.Symlink(filepath.Join(path, "victim"), filepath.Join(path, part+".tmp")); err != nil {
				t.Fatal(err)
			}
			return t.Context()
		}, nil, []string{part + ".gz"}},
	} {
		t.Run(name, func(t *testing.T) {
			d, path := directory(t, map[string]string{part: "text"})
			ctx := c.prepare(t, path)
			if err := d.Compress(ctx, part); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if diff := cmp.Diff(c.left, ls(t, path)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOpenDirectoryRefuses(t *testing.T) {
	root := t.TempDir()
	if err := os.Symlink("/etc", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"link": ErrEscape, "..": ErrEscape, "": ErrEscape, "none": fs.ErrNotExist,
	} {
		if _, err := OpenDirectory(root, path); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
}
