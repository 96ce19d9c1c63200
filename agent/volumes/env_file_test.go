package volumes

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Environment files are written by containers: whatever they make of them, no file of the host is
// read, and nothing is waited for.
func TestReadEnvFile(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	volume, outside := t.TempDir(), t.TempDir()
	write(t, outside+"/secret", "SECRET='x'")
	write(t, volume+"/dir/env", "A='1'")
	must(t, os.Symlink("dir/env", volume+"/link"))
	must(t, os.Symlink(outside+"/secret", volume+"/out"))
	must(t, os.Symlink("../"+filepath.Base(outside)+"/secret", volume+"/climb"))
	must(t, os.Symlink("/proc/self/environ", volume+"/magic"))
	must(t, os.Symlink("loop", volume+"/loop"))
	must(t, unix.Mkfifo(volume+"/pipe", 0o600))
	must(t, os.WriteFile(volume+"/huge", nil, 0o600))
	must(t, os.Truncate(volume+"/huge", 1<<40))
	for path, want := range map[string]string{
		"dir/env":    "A='1'",
		"link":       "A='1'",
		"dir//./env": "A='1'",
		"none":       "missing",
		"none/env":   "missing",
		"out":        "",
		"climb":      "",
		"magic":      "",
		"loop":       "",
		"pipe":       "",
		"dir":        "",
		"huge":       "",
		"../x":       "",
	} {
		content, err := m.ReadEnvFile(Mount{HostPath: volume}, path)
		switch {
		case want == "missing" && !errors.Is(err, fs.ErrNotExist), want != "missing" && errors.Is(err, fs.ErrNotExist):
			t.Errorf("%s: error %v", path, err)
		case want == "" && err == nil, want != "missing" && content != want:
			t.Errorf("%s: %.20q, %v", path, content, err)
		}
	}
	if _, err := m.ReadEnvFile(Mount{}, "env"); err == nil {
		t.Error("read a volume that is not on the node")
	}
}
