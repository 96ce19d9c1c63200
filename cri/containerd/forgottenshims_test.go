package containerd

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shimVariable makes the test's program play a shim: it reports that it is up and does nothing.
// With "parent" it first starts a child.
const shimVariable = "BERTH_TEST_PLAY_SHIM"

func playShim(role string) {
	if role == "parent" {
		child := exec.Command(os.Args[0])
		child.Env = []string{shimVariable + "=child"}
		pipe, err := child.StdinPipe() // the child ends with its parent
		if err != nil || child.Start() != nil {
			os.Exit(1)
		}
		defer pipe.Close()
	}
	os.Stdout.WriteString("up\n")
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		os.Exit(0)
	}
}

// startShim starts a process that looks like a shim, in a directory of its own. If forgotten is
// set, it removes the directory.
func startShim(t *testing.T, role string, forgotten bool, args ...string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(t.TempDir(), "containerd-shim-test-v2")
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = filepath.Join(t.TempDir(), "bundle")
	if err := os.Mkdir(cmd.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd.Env = []string{shimVariable + "=" + role}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	if forgotten {
		if err := os.Remove(cmd.Dir); err != nil {
			t.Fatal(err)
		}
	}
	return cmd
}

// alive reports whether the process runs. A process that has ended but was not waited for does not
// run.
func alive(t *testing.T, cmd *exec.Cmd) bool {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err == nil && !strings.Contains(string(raw), ") Z ")
}

func TestEndForgottenShims(t *testing.T) {
	path := socket(t)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var log bytes.Buffer
	r := dial(t, path, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if n, err := r.EndForgottenShims(t.Context()); n != 0 || err != nil {
		t.Fatalf("ended %d of none: %v", n, err)
	}
	mine := []string{"-namespace", "k8s.io", "-id", "abc", "-address", path}
	gone := startShim(t, "shim", true, mine...)
	stay := map[string]*exec.Cmd{
		"has its folder":        startShim(t, "shim", false, mine...),
		"has a child":           startShim(t, "parent", true, mine...),
		"of another containerd": startShim(t, "shim", true, "-namespace", "k8s.io", "-id", "abc", "-address", path+"2"),
		"of another namespace":  startShim(t, "shim", true, "-namespace", "moby", "-id", "abc", "-address", path),
		"without arguments":     startShim(t, "shim", true),
	}
	if n, err := r.EndForgottenShims(t.Context()); n != 1 || err != nil {
		t.Errorf("ended %d: %v", n, err)
	}
	for deadline := time.Now().Add(time.Minute); alive(t, gone); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the forgotten shim lives")
		}
	}
	for why, cmd := range stay {
		if !alive(t, cmd) {
			t.Errorf("ended a shim that %s", why)
		}
	}
	if !strings.Contains(log.String(), "still has a container's process") {
		t.Errorf("nothing was said of the shim with a child:\n%s", log.String())
	}
	listener.Close()
	startShim(t, "shim", true, mine...)
	if n, err := r.EndForgottenShims(t.Context()); n != 0 || err != nil {
		t.Errorf("with nobody at the socket it ended %d: %v", n, err)
	}
}
