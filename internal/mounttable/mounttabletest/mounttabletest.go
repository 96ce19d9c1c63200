// Package mounttabletest helps to test what containers can do to the node's mount table.
//
// Purpose: tests that make mounts whose lines no runtime can read, without doing that to the
// machine. Truth owned: none. Concurrency: each test calls the functions for itself.
package mounttabletest

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// private names the environment variable of a test that runs as a process of its own.
const private = "BERTH_TEST_PRIVATE_MOUNTS"

// Private runs a test as a process of its own in a mount namespace of its own, and returns false
// there. It returns true to the caller that has nothing left to do. It needs root, and skips the
// test without.
func Private(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts file systems")
	}
	if os.Getenv(private) == t.Name() {
		return false
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), private+"="+t.Name())
	// No Pdeathsig: the thread that starts it may end before the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in a mount namespace of its own: %v\n%s", err, out)
	}
	return true
}

// Deep makes directories in the directory path, one in the other, so deep that the path does not
// fit into a line of 64 KiB. It returns the innermost, which is open until the test ends.
func Deep(t *testing.T, path string) int {
	t.Helper()
	dir, err := unix.Open(path, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for range 300 {
		if err != nil {
			t.Fatal(err)
		}
		name := strings.Repeat("d", unix.NAME_MAX)
		if err := unix.Mkdirat(dir, name, 0o777); err != nil {
			t.Fatal(err)
		}
		above := dir
		dir, err = unix.Openat(above, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(above)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(dir) })
	return dir
}
