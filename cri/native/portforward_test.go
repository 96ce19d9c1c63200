package native

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/thread"
)

// inNewNetwork calls f on a thread in a new network namespace with a loopback, and makes a link to
// the namespace at a path, which is good until the test's end.
func inNewNetwork(t *testing.T, path string, f func() error) {
	t.Helper()
	ready, over := make(chan error, 1), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		err := thread.Own(func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			err := errors.Join(loopbackUp(), keepLink(path), f())
			ready <- err
			<-over
			return nil
		})
		if err != nil {
			ready <- err
		}
	})
	t.Cleanup(func() { close(over); group.Wait() })
	switch err := <-ready; {
	case errors.Is(err, unix.EPERM):
		t.Skip("only root makes network namespaces")
	case err != nil:
		t.Fatal(err)
	}
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func keepLink(path string) error {
	thread, err := os.Readlink("/proc/thread-self")
	if err != nil {
		return err
	}
	return os.Symlink(filepath.Join("/proc", thread, "ns/net"), path)
}

// Connections into a sandbox are made in its network, and those to a port that does not answer keep
// no threads.
func TestDialSandbox(t *testing.T) {
	dir := t.TempDir()
	s := &streamRuntime{&Runtime{cfg: Config{StateDir: dir}}}
	if err := os.Mkdir(filepath.Join(dir, "netns"), 0o700); err != nil {
		t.Fatal(err)
	}
	var answers, silent net.Listener
	inNewNetwork(t, s.netns("a"), func() (err error) {
		if answers, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp6", "[::1]:0"); err != nil {
			return err
		}
		if silent, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0"); err != nil {
			return err
		}
		raw, err := silent.(*net.TCPListener).SyscallConn()
		if err != nil {
			return err
		}
		var shrunk error
		err = raw.Control(func(fd uintptr) { shrunk = unix.Listen(int(fd), 0) })
		return errors.Join(err, shrunk)
	})
	defer answers.Close()
	defer silent.Close()
	sb := &sandbox{id: "a", config: &runtimeapi.PodSandboxConfig{}}
	port := func(l net.Listener) int32 { return int32(l.Addr().(*net.TCPAddr).Port) }

	conn, err := s.dial(t.Context(), sb, port(answers))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()

	threads := func() int {
		list, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	before := threads()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var dials sync.WaitGroup
	var mu sync.Mutex
	timedOut := 0
	for range 60 {
		dials.Go(func() {
			conn, err := s.dial(ctx, sb, port(silent))
			if err == nil {
				<-ctx.Done()
				conn.Close()
				return
			}
			mu.Lock()
			defer mu.Unlock()
			timedOut++
		})
	}
	during := 0
	for ctx.Err() == nil {
		during = max(during, threads())
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	dials.Wait()
	if timedOut < 50 {
		t.Fatalf("only %d of the connections did not come about", timedOut)
	}
	if during > before+30 {
		t.Errorf("%d threads wait for %d connections", during-before, timedOut)
	}
}

// ended is a client that has ended its input, or left.
type ended struct{ io.Writer }

func (ended) Read([]byte) (int, error) { return 0, io.EOF }

func (ended) Close() error { return nil }

// A port that keeps its side of a connection open does not keep the connection without a client. An
// answer that comes in time is passed on.
func TestForwardWithoutClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		port, conn := net.Pipe()
		defer port.Close()
		var answer strings.Builder
		forwarded := make(chan struct{})
		go func() {
			defer close(forwarded)
			forward(conn, ended{&answer}, time.Minute)
		}()
		for range 3 {
			time.Sleep(50 * time.Second)
			if _, err := port.Write([]byte("word ")); err != nil {
				t.Error(err)
			}
		}
		select {
		case <-forwarded:
		case <-time.After(time.Hour):
			t.Fatal("the connection stays")
		}
		if answer.String() != "word word word " {
			t.Errorf("the answer is %q", answer.String())
		}
	})
}

// The connections into a sandbox are bounded, and those into all sandboxes.
func TestForwardsAreBounded(t *testing.T) {
	var f forwards
	var leaves []func()
	enter := func(sandbox string, want bool) {
		t.Helper()
		leave, err := f.enter(sandbox)
		if (err == nil) != want || err != nil && !errdefs.IsResourceExhausted(err) {
			t.Fatalf("a connection into %s: %v", sandbox, err)
		}
		if err == nil {
			leaves = append(leaves, leave)
		}
	}
	for range maxForwarded {
		enter("a", true)
	}
	enter("a", false)
	for i := range maxForwardedAll - maxForwarded {
		enter(string(rune('b'+i/maxForwarded)), true)
	}
	enter("z", false)
	leaves[0]()
	leaves = leaves[1:]
	enter("z", true)
	for _, leave := range leaves {
		leave()
	}
	if len(f.counts) > 0 || f.all != 0 {
		t.Errorf("still counted: %v, %d", f.counts, f.all)
	}
}
