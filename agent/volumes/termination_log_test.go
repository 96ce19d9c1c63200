package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTerminationLog(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	dir := filepath.Join(m.PodDir(pod.UID), "containers/main")
	var last string
	for attempt := range uint32(10) {
		path, err := m.TerminationLog(pod, "main", attempt)
		must(t, err)
		if filepath.Dir(path) != dir || !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(filepath.Base(path)) ||
			path == last {
			t.Errorf("path = %s", path)
		}
		last = path
		must(t, os.WriteFile(path, []byte("bye"), 0))
		// Made again after a crash, it is the same file's name, and empty.
		again, err := m.TerminationLog(pod, "main", attempt)
		must(t, err)
		info, err := os.Stat(again)
		must(t, err)
		if again != path || info.Size() != 0 || info.Mode() != 0o666 {
			t.Errorf("again: %s, %d bytes, %v", again, info.Size(), info.Mode())
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != keptTerminationLogs {
		t.Errorf("%d logs are left, want %d", len(entries), keptTerminationLogs)
	}
	if _, err := m.TerminationLog(pod, "../main", 0); err == nil {
		t.Error("a container name that climbs was accepted")
	}
}

func TestTerminationLogReplacesLink(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	precious := filepath.Join(t.TempDir(), "precious")
	write(t, precious, "x")
	path, err := m.TerminationLog(pod, "main", 0)
	must(t, err)
	must(t, os.Remove(path))
	must(t, os.Symlink(precious, path))
	_, err = m.TerminationLog(pod, "main", 0)
	must(t, err)
	if read(t, precious) != "x" {
		t.Error("the link was followed")
	}
}

func TestReadTerminationMessage(t *testing.T) {
	root := t.TempDir()
	m := testManager(root, newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	path, err := m.TerminationLog(pod, "main", 0)
	must(t, err)
	for data, want := range map[string]string{
		"":                                "",
		"short":                           "short",
		strings.Repeat("x", 5000) + "end": strings.Repeat("x", 4093) + "end",
	} {
		must(t, os.WriteFile(path, []byte(data), 0))
		if got, err := m.ReadTerminationMessage(path, 4096); err != nil || got != want {
			t.Errorf("read %d bytes of %d, error %v", len(got), len(data), err)
		}
	}
	dir := filepath.Dir(path)
	outside := filepath.Join(root, "outside")
	write(t, outside, "secret")
	must(t, os.Symlink(outside, dir+"/link"))
	must(t, os.Symlink(".", dir+"/loop"))
	must(t, unix.Mkfifo(dir+"/pipe", 0o666))
	for _, bad := range []string{
		outside, dir + "/link", dir + "/loop/" + filepath.Base(path), dir + "/pipe", dir, "relative", "",
		m.podsDir + "/../outside",
	} {
		if got, err := m.ReadTerminationMessage(bad, 4096); err == nil {
			t.Errorf("read %q from %q", got, bad)
		}
	}
	if _, err := m.ReadTerminationMessage(dir+"/none", 4096); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// A container may write what it likes to its termination log: only the end of it is read.
func TestReadHugeTerminationMessage(t *testing.T) {
	const huge, limit = 100 << 20, 4096
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	path, err := m.TerminationLog(pod, "main", 0)
	must(t, err)
	must(t, os.Truncate(path, huge))
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString("the end")
	must(t, err)
	must(t, f.Close())
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := m.ReadTerminationMessage(path, limit)
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != limit || !strings.HasSuffix(got, "\x00the end") {
		t.Errorf("read %d bytes, error %v", len(got), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 64*limit {
		t.Errorf("reading %d bytes took %d bytes of memory", limit, used)
	}
}
