package volumes

import (
	"os"
	"path/filepath"
	"testing"
)

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
