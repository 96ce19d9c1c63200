package lock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/flock"
)

// childVariable makes this program another agent: it takes the locks of the directories below the
// variable's value and keeps them until its standard input ends.
const childVariable = "LOCK_TEST_DIR"

// strangerVariable makes this program one that is no agent: it locks the files and directories of a
// list until its standard input ends. userVariable makes it another user's before it waits.
const strangerVariable, userVariable = "LOCK_TEST_STRANGER", "LOCK_TEST_USER"

// hideVariable says where the stranger hides the open files: in a socket of its own ("socket"), or
// with one of its threads ("thread").
const hideVariable = "LOCK_TEST_HIDE"

func TestMain(m *testing.M) {
	if list := os.Getenv(strangerVariable); list != "" {
		take := func() error { return takeAsStranger(filepath.SplitList(list)) }
		var err error
		if os.Getenv(hideVariable) == "thread" {
			err = inThread(take)
		} else {
			err = take()
		}
		if id, notSet := strconv.Atoi(os.Getenv(userVariable)); notSet == nil {
			err = errors.Join(err, syscall.Setresuid(id, id, id))
		}
		fmt.Println("took", err)
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}
	if dir := os.Getenv(childVariable); dir != "" {
		l, err := takeBelow(context.Background(), dir, configOf(dir, "other"))
		if err == nil {
			err = errors.Join(l.Cgroup(filepath.Join(dir, "cgroup")), servePort(filepath.Join(dir, "port")))
		}
		fmt.Println("took", err)
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// takeAsStranger locks files and directories, and hides the open files if that is asked for.
func takeAsStranger(paths []string) error {
	var err error
	for _, path := range paths {
		f, openErr := os.Open(path)
		err = errors.Join(err, openErr, flock.Take(f))
		if os.Getenv(hideVariable) == "socket" {
			err = errors.Join(err, hide(f))
		}
	}
	return err
}

// hide sends an open file to a socket of this process, which nobody reads, and closes it: it stays
// open, but is not in /proc.
func hide(f *os.File) error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Sendmsg(ends[0], []byte{0}, unix.UnixRights(int(f.Fd())), nil, 0), f.Close())
}

// inThread calls take in a thread whose open files are not those of the process.
func inThread(take func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			result <- inThread(take)
		} else {
			result <- errors.Join(unix.Unshare(unix.CLONE_FILES), take())
		}
		select {} // the end of the thread would close the files
	}()
	return <-result
}

// takeBelow takes the locks of an agent below dir, where the shared locks are, too.
func takeBelow(ctx context.Context, dir string, cfg *configs.Config) (*Lock, error) {
	return takeIn(ctx, cfg, filepath.Join(dir, "locks"))
}

// servePort listens on a port until the process ends, and writes the port's number to a file.
func servePort(file string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { _, _ = l.Accept() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return errors.Join(err, os.WriteFile(file, []byte(port), 0o600))
}

// configOf returns the config of an agent below dir; agents with other names share no directory.
func configOf(dir, name string) *configs.Config {
	cfg := &configs.Config{Flags: configs.Flags{RootDir: filepath.Join(dir, name, "root")}}
	cfg.Kubelet.StaticPodPath = filepath.Join(dir, name, "manifests")
	cfg.Kubelet.PodLogsDir = filepath.Join(dir, name, "logs")
	return cfg
}

// otherAgent runs another agent below dir until end is called, which kills it.
func otherAgent(t *testing.T, dir string) (pid int, end func()) {
	t.Helper()
	for _, sub := range []string{"other/manifests", "cgroup"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, childVariable+"="+dir)
}

// start runs this program with a variable in its environment until end is called, which kills it.
func start(t *testing.T, variable string) (pid int, end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), variable)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	t.Cleanup(end)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "took <nil>\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd.Process.Pid, end
}

// TestLockKeepsASecondAgentOut checks that each of the shared things keeps a second agent out, that
// the error names the other agent, and that the death of the other agent frees everything.
func TestLockKeepsASecondAgentOut(t *testing.T) {
	dir := t.TempDir()
	pid, kill := otherAgent(t, dir)
	other := configOf(dir, "other")
	shared := map[string]struct {
		share   func(cfg *configs.Config)
		setting string
	}{
		"root directory": {func(c *configs.Config) { c.RootDir = other.RootDir }, "--root-dir"},
		"manifest directory": {
			func(c *configs.Config) { c.Kubelet.StaticPodPath = other.Kubelet.StaticPodPath }, "staticPodPath",
		},
		"directory of the pods' logs": {
			func(c *configs.Config) { c.Kubelet.PodLogsDir = other.Kubelet.PodLogsDir }, "podLogsDir",
		},
	}
	by := fmt.Sprintf("another agent (process %d, root directory %s) holds the ", pid, other.RootDir)
	for what, s := range shared {
		cfg := configOf(dir, "own")
		s.share(cfg)
		_, err := takeBelow(t.Context(), dir, cfg)
		if err == nil || !strings.HasPrefix(err.Error(), by+what+" ") ||
			!strings.HasSuffix(err.Error(), ": stop it, or give this one its own "+s.setting) {
			t.Errorf("%s: %v, want %q", what, err, by)
		}
	}
	own, err := takeBelow(t.Context(), dir, configOf(dir, "own"))
	if err != nil {
		t.Fatalf("an agent that shares nothing: %v", err)
	}
	defer own.Release()
	if err := own.Cgroup(filepath.Join(dir, "cgroup")); err == nil || !strings.HasPrefix(err.Error(), by+"cgroup ") {
		t.Errorf("the cgroup of another agent: %v", err)
	}
	if found, held, err := OfRoot(other.RootDir); !held || err != nil || found.PID != pid {
		t.Errorf("the holder of the root directory: %+v, %t, %v", found, held, err)
	}
	kill()
	if found, held, err := OfRoot(other.RootDir); held || err != nil {
		t.Errorf("the holder that is dead: %+v, %t, %v", found, held, err)
	}
	again, err := takeBelow(t.Context(), dir, other)
	if err != nil {
		t.Fatalf("locks of a dead agent are not free: %v", err)
	}
	again.Release()
	for range 2 { // the cgroups are set up again and again
		if err := own.Cgroup(filepath.Join(dir, "cgroup")); err != nil {
			t.Errorf("the cgroup of a dead agent: %v", err)
		}
	}
	if left, err := os.ReadDir(other.Kubelet.StaticPodPath); err != nil || len(left) > 0 {
		t.Errorf("the lock leaves %v in the manifest directory, %v", left, err)
	}
}

// TestStrangersKeepNoAgentOut has a process lock the directories that everybody may read, and then
// also a file of its own that is named as the lock of an agent, and then as another user, whose
// open files are not looked at.
func TestStrangersKeepNoAgentOut(t *testing.T) {
	dir := t.TempDir()
	cfg := configOf(dir, "own")
	forged := filepath.Join(dir, "forged", "berth", "lock")
	for _, path := range []string{cfg.Kubelet.StaticPodPath, cfg.Kubelet.PodLogsDir, filepath.Dir(forged)} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(forged, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	held := []string{cfg.Kubelet.StaticPodPath, cfg.Kubelet.PodLogsDir}
	const nobody = "65534"
	for _, c := range []struct {
		more []string
		user string
	}{{}, {more: []string{forged}}, {user: nobody}} {
		if (len(c.more) > 0 || c.user != "") && os.Chown(forged, 65534, 65534) != nil {
			t.Skip("only root can give a file away, or become another user")
		}
		t.Setenv(userVariable, c.user)
		pid, end := start(t, strangerVariable+"="+strings.Join(append(held, c.more...), string(filepath.ListSeparator)))
		if foreign := !own(fmt.Sprintf("/proc/%d", pid)); foreign != (c.user != "") {
			t.Errorf("the process of the user %q counts as another user's: %t", c.user, foreign)
		}
		l, err := takeBelow(t.Context(), dir, cfg)
		if err != nil {
			t.Errorf("a process of the user %q that holds also %v: %v", c.user, c.more, err)
		} else {
			l.Release()
		}
		end()
	}
}

// Nobody finds the process that locks the directories, and still two agents do not share one.
func TestHiddenStrangersKeepNoAgentOut(t *testing.T) {
	dir := t.TempDir()
	other := configOf(dir, "other")
	held := []string{other.Kubelet.StaticPodPath, other.Kubelet.PodLogsDir, filepath.Join(dir, "cgroup")}
	for _, path := range held {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(hideVariable, "socket")
	start(t, strangerVariable+"="+strings.Join(held, string(filepath.ListSeparator)))
	pid, _ := otherAgent(t, dir)
	cfg := configOf(dir, "own")
	cfg.Kubelet.PodLogsDir = other.Kubelet.PodLogsDir
	_, err := takeBelow(t.Context(), dir, cfg)
	want := fmt.Sprintf("another agent (process %d, root directory %s) holds the directory of the pods' logs ", pid,
		other.RootDir)
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("an agent with the same logs: %v, want %q", err, want)
	}
	if info, err := os.Stat(filepath.Join(dir, "locks")); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the directory of the locks: %v, %v", info, err)
	}
}

// The process of a thread that has the lock is named, although the process has no such open file.
func TestHolderIsAThread(t *testing.T) {
	dir := t.TempDir()
	cfg := configOf(dir, "own")
	cfg.Lock.File = filepath.Join(dir, "lock-file")
	if err := os.WriteFile(cfg.Lock.File, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(hideVariable, "thread")
	pid, _ := start(t, strangerVariable+"="+cfg.Lock.File)
	_, err := takeBelow(t.Context(), dir, cfg)
	if want := fmt.Sprintf("another agent (process %d) holds ", pid); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestLockOfNothing(t *testing.T) {
	dir := t.TempDir()
	first, second := configOf(dir, "a"), configOf(dir, "b")
	second.Kubelet.StaticPodPath = first.Kubelet.StaticPodPath // does not exist yet
	for _, cfg := range []*configs.Config{first, second} {
		l, err := takeBelow(t.Context(), dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Release()
	}
	if _, held, err := OfRoot(filepath.Join(dir, "nowhere")); held || err != nil {
		t.Errorf("a root directory without an agent: %t, %v", held, err)
	}
}

func TestWatchLockEndsOnContention(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	options := configs.LockOptions{File: file, ExitOnContention: true}
	done := make(chan error, 1)
	go func() { done <- Watch(t.Context(), options) }()
	for {
		select {
		case err := <-done:
			if !errors.Is(err, errContended) {
				t.Fatal(err)
			}
			return
		default:
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		}
	}
}
