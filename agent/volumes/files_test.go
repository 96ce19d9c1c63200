package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
		if filepath.Dir(path) != dir || !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(filepath.Base(path)) || path == last {
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
	for data, want := range map[string]string{"": "", "short": "short", strings.Repeat("x", 5000) + "end": strings.Repeat("x", 4093) + "end"} {
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
	for _, bad := range []string{outside, dir + "/link", dir + "/loop/" + filepath.Base(path), dir + "/pipe", dir, "relative", "", m.podsDir + "/../outside"} {
		if got, err := m.ReadTerminationMessage(bad, 4096); err == nil {
			t.Errorf("read %q from %q", got, bad)
		}
	}
	if _, err := m.ReadTerminationMessage(dir+"/none", 4096); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestWriteHosts(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	path, err := m.WriteHosts(pod, []byte("127.0.0.1 localhost\n"))
	must(t, err)
	if path != filepath.Join(m.PodDir(pod.UID), "etc-hosts") {
		t.Errorf("path = %s", path)
	}
	first, err := os.Stat(path)
	must(t, err)
	for _, content := range []string{"longer than it was before, by much\n", "short\n", ""} {
		_, err = m.WriteHosts(pod, []byte(content))
		must(t, err)
		info, err := os.Stat(path)
		must(t, err)
		if !os.SameFile(first, info) || info.Mode() != 0o644 || read(t, path) != content {
			t.Errorf("hosts = %q, %v, same file: %v", read(t, path), info.Mode(), os.SameFile(first, info))
		}
	}
	// Equal content is left alone.
	must(t, os.Chtimes(path, fixedNow(), fixedNow()))
	_, err = m.WriteHosts(pod, nil)
	must(t, err)
	if info, _ := os.Stat(path); !info.ModTime().Equal(fixedNow()) {
		t.Error("equal content was written again")
	}
	must(t, os.Remove(path))
	must(t, os.Symlink("/etc/passwd", path))
	if _, err := m.WriteHosts(pod, []byte("x")); err == nil {
		t.Error("a link was written through")
	}
}
