package shims

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test's program play a shim, or with "child" a process of a container. Both
// run until their standard input ends.
const roleVariable = "BERTH_TEST_SHIM_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if role == "shim" {
		child := exec.Command(os.Args[0])
		child.Env, child.Stdin, child.Stdout = []string{roleVariable + "=child"}, os.Stdin, os.Stdout
		if child.Start() != nil {
			os.Exit(1)
		}
	}
	os.Stdout.WriteString("up\n")
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// A shim is found by its containerd and namespace. Ending it ends its children, and no other shim.
func TestEnd(t *testing.T) {
	dir := t.TempDir()
	socket := filepath.Join(dir, "c.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	whose := Containerd{Socket: socket, Namespace: "berth"}
	mine := startShim(t, "-namespace", "berth", "-id", "mine", "-address", socket)
	startShim(t, "-namespace", "other", "-id", "other", "-address", socket)
	startShim(t, "-namespace", "berth", "-id", "else", "-address", socket+"2")
	find := func(removed bool) []Shim {
		found, err := Of(t.Context(), whose, removed)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	began := startOf(mine.Process.Pid)
	want := []Shim{{PID: mine.Process.Pid, ID: "mine", Bundle: mine.Dir, Parent: true, began: began}}
	if got := find(false); !slices.Equal(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if got := find(true); len(got) != 0 {
		t.Errorf("shims with a directory count as removed: %+v", got)
	}
	children := childrenOf(mine.Process.Pid)
	if len(children) != 1 {
		t.Fatalf("children %v", children)
	}
	// An earlier shim had the process ID, and the same arguments.
	if err := End(t.Context(), Shim{PID: mine.Process.Pid, ID: "mine", began: "1" + began}); err != nil {
		t.Fatal(err)
	}
	if got := find(false); !slices.Equal(got, want) || stateOf(children[0].pid) == "Z" {
		t.Errorf("what has the process ID of another was ended: %+v", got)
	}
	if err := os.Remove(mine.Dir); err != nil {
		t.Fatal(err)
	}
	want[0].Removed = true
	if got := find(true); !slices.Equal(got, want) {
		t.Errorf("found %+v, want %+v", got, want)
	}
	if err := End(t.Context(), want[0]); err != nil {
		t.Fatal(err)
	}
	if state := stateOf(children[0].pid); children[0].still() && state != "Z" {
		t.Errorf("the child lives, its state is %s", state)
	}
	if got := find(false); len(got) != 0 {
		t.Errorf("left are %+v", got)
	}
}

// Nobody follows a path in the arguments of a process in another mount namespace: it may hang.
func TestPathsOfOthersAreNotFollowed(t *testing.T) {
	link := filepath.Join(t.TempDir(), "c.sock")
	if err := os.Symlink("nowhere", link); err != nil {
		t.Fatal(err)
	}
	shim := startShim(t, "-namespace", "berth", "-id", "mine", "-address", link)
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	// The kernel notes when a link was followed.
	follows := func(namespace string) bool {
		t.Helper()
		long := unix.NsecToTimespec(time.Unix(1, 0).UnixNano())
		times := []unix.Timespec{long, long}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, link, times, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			t.Fatal(err)
		}
		whose := Containerd{Socket: filepath.Join(t.TempDir(), "other.sock"), Namespace: "berth"}
		whose.at(shim.Process.Pid, namespace, false)
		var st unix.Stat_t
		if err := unix.Lstat(link, &st); err != nil {
			t.Fatal(err)
		}
		return st.Atim != long
	}
	if !follows(own) {
		t.Skip("this file system does not note when a link is followed")
	}
	if follows("mnt:[1]") {
		t.Error("the path of a process in another mount namespace is followed")
	}
}

// stateOf returns the state of a process, as in /proc/PID/stat.
func stateOf(pid int) string {
	raw, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return ""
	}
	return strings.Fields(string(raw[strings.LastIndex(string(raw), ")")+1:]))[0]
}

// startShim starts a process that looks like a shim and has a child, in a directory of its own.
func startShim(t *testing.T, args ...string) *exec.Cmd {
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
	cmd.Dir, cmd.Env = filepath.Join(t.TempDir(), "bundle"), []string{roleVariable + "=shim"}
	if err := os.Mkdir(cmd.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
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
	for said := 0; said < 2*len("up\n"); { // by it and its child
		n, err := out.Read(make([]byte, 8))
		if err != nil {
			t.Fatal(err)
		}
		said += n
	}
	return cmd
}
