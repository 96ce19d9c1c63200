package volumes

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// lease is a lease on a file, as a process in a container can hold it. The holder gives it up as
// soon as the kernel asks for it. So an open that waits for the holder succeeds, and one that does
// not wait fails.
type lease struct {
	file *os.File
	kind int
	// over is closed when the lease was given up.
	over chan struct{}
}

// holdLease takes a lease: unix.F_RDLCK keeps others from writing, unix.F_WRLCK also from reading.
func holdLease(t *testing.T, path string, kind int) *lease {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	l := &lease{file: file, kind: kind, over: make(chan struct{})}
	asked, done, ended := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(asked, unix.SIGIO)
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, kind)
	go func() {
		defer close(ended)
		for {
			select {
			case <-asked:
			case <-done:
				return
			}
			if !l.held() {
				_, _ = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
				close(l.over)
				return
			}
		}
	}()
	t.Cleanup(func() {
		signal.Stop(asked)
		close(done)
		<-ended
		_ = file.Close()
	})
	if errors.Is(err, unix.EINVAL) {
		t.Skip("the file system has no leases")
	}
	must(t, err)
	return l
}

// held reports whether nobody has asked for the lease.
func (l *lease) held() bool {
	kind, err := unix.FcntlInt(l.file.Fd(), unix.F_GETLEASE, 0)
	return err == nil && kind == l.kind
}

// A container cannot make the agent wait for a lease on a file of its pod. The error names the
// lease, and a later call succeeds.
func TestOpensWaitForNoLease(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	pod, volume := testPod(), t.TempDir()
	must(t, m.EnsureDirs(t.Context(), pod))
	hosts, err := m.WriteHosts(pod, []byte("old"))
	must(t, err)
	message, err := m.TerminationLog(pod, "main", 0)
	must(t, err)
	env, hostFile := filepath.Join(volume, "env"), filepath.Join(volume, "file")
	write(t, env, "A='1'")
	write(t, hostFile, "")
	writeHosts := func(content string) func() error {
		return func() error {
			_, err := m.WriteHosts(pod, []byte(content))
			return err
		}
	}
	for _, c := range []struct {
		name string
		path string
		kind int
		call func() error
	}{
		{"hosts file to compare", hosts, unix.F_WRLCK, writeHosts("old")},
		{"hosts file to write", hosts, unix.F_RDLCK, writeHosts("new")},
		{"environment file", env, unix.F_WRLCK, func() error {
			_, err := m.ReadEnvFile(Mount{HostPath: volume}, "env")
			return err
		}},
		{"termination message", message, unix.F_WRLCK, func() error {
			_, err := m.ReadTerminationMessage(message, 4096)
			return err
		}},
		{"hostPath file to create", hostFile, unix.F_RDLCK, func() error { return createFile(hostFile) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := holdLease(t, c.path, c.kind)
			err := c.call()
			if !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), "a process holds a lease on ") {
				t.Fatalf("error %v", err)
			}
			<-l.over
			if err := c.call(); err != nil {
				t.Errorf("after the lease: %v", err)
			}
		})
	}
	if got := read(t, hosts); got != "new" {
		t.Errorf("hosts file %q", got)
	}
}

// A hosts file that need not change is only read, which a lease for reading allows.
func TestEqualHostsFileIsNotOpenedForWriting(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	path, err := m.WriteHosts(pod, []byte("same"))
	must(t, err)
	l := holdLease(t, path, unix.F_RDLCK)
	if _, err := m.WriteHosts(pod, []byte("same")); err != nil || !l.held() {
		t.Errorf("error %v, held: %v", err, l.held())
	}
}

// Containers only read a volume of files, but can hold a lease that keeps others from reading.
func TestWriterReplacesLeasedFile(t *testing.T) {
	dir := t.TempDir()
	w := testWriter(t, dir)
	payload := files("a", "1", "b", "2")
	_, err := w.write(payload, nil)
	must(t, err)
	holdLease(t, filepath.Join(dir, "a"), unix.F_WRLCK)
	if changed, err := w.write(payload, nil); err != nil || !changed {
		t.Errorf("changed: %v, error %v", changed, err)
	}
	checkHolds(t, dir, payload)
}
