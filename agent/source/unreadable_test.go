package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// nobody is a user that no file's mode makes an exception for.
const nobody = 65534

// TestFileUnreadableDirectory: a directory that must not be read is not an empty one, be it from
// the start or later on. Root may read everything, so root has somebody else run this.
func TestFileUnreadableDirectory(t *testing.T) {
	if os.Geteuid() == 0 {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run", "^"+t.Name()+"$", "-test.v")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		cmd.Dir = "/"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("as user %d: %v\n%s", nobody, err, out)
		}
		return
	}
	dir := privateDir(t)
	mode := func(mode os.FileMode) { must(t, os.Chmod(dir, mode)) }
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))

	mode(0)
	r := start(t, dir)
	if s := r.refused("manifests", "permission denied"); s.Ready {
		t.Errorf("ready without having read anything: %s", describe(s))
	}
	mode(0o700)
	if s := r.pods("a=i:1"); !s.Ready {
		t.Errorf("%s", describe(s))
	}
	mode(0)
	r.refused("manifests", "permission denied")
	r.pods("a=i:1")
	mode(0o700)
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.pods()

	// A file that must not be read keeps its pod, too.
	r.write("b.yaml", podManifest("b", "i:1"))
	r.pods("b=i:1")
	must(t, os.Chmod(filepath.Join(dir, "b.yaml"), 0))
	r.refused("b.yaml", "permission denied")
	r.pods("b=i:1")
}
