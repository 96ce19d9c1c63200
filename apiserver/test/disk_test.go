//go:build cluster

package test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// diskSize is that of the small disk: etcd's log takes 128 MB of it.
const diskSize = "320m"

// TestFullDisk fills the server's disk. Reads go on, writes are refused with 507, and when there is
// room again writes go on, all in the same process. A start on a full disk serves, too, after a
// power cut and after a clean end, and such a server ends when it is asked to. The test mounts a
// small disk, which root may.
func TestFullDisk(t *testing.T) {
	dir := filepath.Join(shortFolder(t), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("berth-test", dir, "tmpfs", 0, "size="+diskSize+",mode=0700"); err != nil {
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	s := startIn(t, dir, "--scheduler=false")
	s.kubectl(t, "create", "configmap", "before", "--from-literal=k=v")
	ballast := filepath.Join(dir, "ballast")
	full := func() { fill(t, ballast) }
	restart := func(end func()) {
		end()
		full()                                                // of what the end has given back, too
		s.args = append(s.args, "--tls-san", "later.example") // a certificate that cannot be written
		s.start(t)
		s.isFull(t)
		s.hasSpare(t)
	}
	clean := func() { s.stop(t) }
	for round, happens := range []func(){
		full,
		func() { full(); s.isFull(t); restart(s.kill) },
		func() { restart(clean); restart(clean) },
	} {
		pid := s.cmd.Process.Pid
		happens()
		s.isFull(t)
		if round == 0 && s.cmd.Process.Pid != pid {
			t.Error("the server started again")
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		s.kubectl(t, "create", "configmap", fmt.Sprintf("after-%d", round))
	}
}

// hasSpare checks that etcd has its next file of its log: without one it would end when it needs it.
func (s *server) hasSpare(t *testing.T) {
	t.Helper()
	var info unix.Stat_t
	if err := unix.Stat(s.file("etcd/member/wal/0.tmp"), &info); err != nil || info.Blocks*512 < 64_000_000 {
		t.Fatalf("etcd has %d bytes for its log, %v", info.Blocks*512, err)
	}
}

// isFull checks that the server reads, answers questions, and refuses to write.
func (s *server) isFull(t *testing.T) {
	t.Helper()
	client := s.client(t)
	s.await(t, "a write is refused", func() error {
		err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "nobody", metav1.DeleteOptions{})
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != http.StatusInsufficientStorage {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	for range 20 {
		s.refuses(t, "the disk is full", "", "create", "configmap", "no-room")
	}
	s.refuses(t, "InsufficientStorage", "", "annotate", "configmap", "before", "a=b")
	if out := s.kubectl(t, "get", "configmap", "before", "-o", "jsonpath={.data.k}"); out != "v" {
		t.Errorf("it reads %q", out)
	}
	if out := s.kubectl(t, "auth", "can-i", "get", "pods"); out != "yes" {
		t.Errorf("it answers %q", out)
	}
}

// fill writes a file until there is no room.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<16); err == nil; {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
}

// TestDamagedData shows that the program refuses a damaged data directory with what to do, and
// that what it says helps. Package store tests more ways of damage.
func TestDamagedData(t *testing.T) {
	s := start(t, "--scheduler=false")
	s.kubectl(t, "create", "configmap", "before")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	snapshot := func(args ...string) {
		t.Helper()
		out, err := exec.Command(program, append([]string{"snapshot", "--data-dir", s.dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("snapshot %s: %v: %s", args[0], err, out)
		}
	}
	snapshot("save", file)
	s.stop(t)
	db := s.file("etcd/member/snap/db")
	if err := os.WriteFile(db, []byte(strings.Repeat("no database", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(program, s.args...).CombinedOutput()
	var exit *exec.ExitError
	said := string(out)
	if !asExit(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(said, "is damaged") ||
		!strings.Contains(said, "berth-apiserver snapshot restore FILE") || strings.Contains(said, "goroutine") {
		t.Errorf("it ends with %v and says\n%s", err, out)
	}
	snapshot("restore", file)
	s.start(t)
	s.kubectl(t, "get", "configmap", "before")
}
