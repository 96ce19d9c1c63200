package store_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/apiserver/store"
)

// TestSnapshotReplacesNoOtherThings names pipes, sockets and the store's own files as the file of a
// snapshot.
func TestSnapshotReplacesNoOtherThings(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(dir, "etcd"), link); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{
		pipe, t.TempDir(), filepath.Join(dir, "etcd.sock"),
		filepath.Join(dir, "etcd", "member", "snap", "db"), filepath.Join(dir, "etcd", "new"), filepath.Join(link, "new"),
	} {
		before, _ := os.Lstat(file)
		if err := store.Save(t.Context(), dir, file); err == nil || !strings.Contains(err.Error(), "name a") {
			t.Errorf("a snapshot to %s: %v", file, err)
		}
		if after, _ := os.Lstat(file); before != nil && !os.SameFile(before, after) || before == nil && after != nil {
			t.Errorf("a refused snapshot has replaced %s", file)
		}
	}
}

func TestSnapshot(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, dir)
	c := client(t, dir)
	put(t, c, "kept", "1")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := store.Save(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the snapshot: %v, %v", info.Mode(), err)
	}
	put(t, c, "later", "2")
	_, before := get(t, c, "later")
	stop()

	unlock, err := store.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Restore(dir, file, time.Now())
	unlock()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(kept); err != nil || !info.IsDir() {
		t.Errorf("the content before the restore is not kept: %v", err)
	}
	start(t, dir)
	c = client(t, dir)
	if got, _ := get(t, c, "kept"); got != "1" {
		t.Errorf("what was saved is %q", got)
	}
	got, revision := get(t, c, "later")
	if got != "" {
		t.Errorf("what came after the snapshot is %q", got)
	}
	if revision <= before {
		t.Errorf("the revision fell from %d to %d", before, revision)
	}
	other := t.TempDir()
	if err := errors.Join(os.Chmod(other, 0o700), os.Rename(kept, filepath.Join(other, "etcd"))); err != nil {
		t.Fatal(err)
	}
	start(t, other)
	if got, _ := get(t, client(t, other), "later"); got != "2" {
		t.Errorf("the content that was kept has %q", got)
	}
}

// TestSnapshotIsNewAndTheCallersAlone shows that a snapshot goes to no file and through no link that
// somebody else has put where it is made, and that a file or link of its name is replaced.
func TestSnapshotIsNewAndTheCallersAlone(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	put(t, client(t, dir), "a", "1")
	for name, c := range map[string]struct {
		suffix string // of what is there before
		link   bool
	}{
		"a file":                  {"", false},
		"a link":                  {"", true},
		"a file of an older save": {".part", false},
		"a link of an older save": {".part", true},
	} {
		t.Run(name, func(t *testing.T) {
			folder, others := t.TempDir(), filepath.Join(t.TempDir(), "others")
			file := filepath.Join(folder, "snapshot.db")
			there := file + c.suffix
			if c.link {
				if err := os.Symlink(others, there); err != nil {
					t.Fatal(err)
				}
			} else {
				others = there
			}
			if err := os.WriteFile(others, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(others, 0o666); err != nil {
				t.Fatal(err)
			}
			if os.Geteuid() == 0 {
				if err := os.Chown(others, 65534, 65534); err != nil {
					t.Fatal(err)
				}
			}
			if err := store.Save(t.Context(), dir, file); err != nil {
				t.Fatal(err)
			}
			info, err := os.Lstat(file)
			if err != nil {
				t.Fatal(err)
			}
			if owner := info.Sys().(*syscall.Stat_t).Uid; info.Mode() != 0o600 || int(owner) != os.Geteuid() {
				t.Errorf("the snapshot has the mode %v and the owner %d", info.Mode(), owner)
			}
			if text, err := os.ReadFile(others); others != file && (err != nil || string(text) != "old") {
				t.Errorf("what was there before has now %d bytes: %v", len(text), err)
			}
			want := 1
			if c.suffix != "" {
				want = 2
			}
			if entries, err := os.ReadDir(folder); err != nil || len(entries) != want {
				t.Errorf("the folder has %v, %v", entries, err)
			}
		})
	}
}

// TestFailedSnapshotLeavesNothing shows that a save that fails at its end leaves what was there.
func TestFailedSnapshotLeavesNothing(t *testing.T) {
	dir, folder := t.TempDir(), t.TempDir()
	start(t, dir)
	there := filepath.Join(folder, "snapshot.db")
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := store.Save(t.Context(), dir, there); err == nil {
		t.Error("a folder was replaced")
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestRestoreAfterOneThatBrokeOff(t *testing.T) {
	dir := t.TempDir()
	file := saved(t, dir)
	if err := os.MkdirAll(filepath.Join(dir, "etcd.restoring", "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, stop := start(t, dir) // the old store is there
	stop()
	if _, err := store.Restore(dir, file, time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "etcd.restoring")); err == nil {
		t.Error("the folder of the restore is still there")
	}
	start(t, dir)
	if got, _ := get(t, client(t, dir), "a"); got != "1" {
		t.Errorf("the value is %q", got)
	}
}

func TestRestoreIntoAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	file := saved(t, dir)
	other := t.TempDir()
	unlock, err := store.Lock(other)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := store.Restore(other, file, time.Now())
	unlock()
	if err != nil || kept != "" {
		t.Fatalf("restore: %q, %v", kept, err)
	}
	start(t, other)
	if got, _ := get(t, client(t, other), "a"); got != "1" {
		t.Errorf("the value is %q", got)
	}
}

func TestFailedRestoreChangesNothing(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, dir)
	put(t, client(t, dir), "a", "1")
	stop()
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte(strings.Repeat("no snapshot", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		broken: "take another", filepath.Join(t.TempDir(), "missing"): "no such file",
	} {
		if _, err := store.Restore(dir, file, time.Now()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the restore of %s: %v, want %q", file, err, want)
		}
	}
	start(t, dir)
	if got, _ := get(t, client(t, dir), "a"); got != "1" {
		t.Errorf("the value is %q", got)
	}
}

// TestNoRunningStore shows that nobody waits for a store that does not run, nor for one that was
// killed and has left its socket.
func TestNoRunningStore(t *testing.T) {
	killed := t.TempDir()
	l, err := net.Listen("unix", strings.TrimPrefix(store.Endpoint(killed), "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"never started": t.TempDir(), "killed": killed} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := store.Save(ctx, dir, filepath.Join(t.TempDir(), "s"))
		if err == nil || !strings.Contains(err.Error(), "start berth-apiserver first") {
			t.Errorf("%s: a snapshot says %v", name, err)
		}
		_, _, err = store.Defragment(ctx, dir)
		if err == nil || !strings.Contains(err.Error(), "start berth-apiserver first") {
			t.Errorf("%s: a defragmentation says %v", name, err)
		}
	}
}

// TestTwoRestoresInOneSecond shows that each keeps the content before it.
func TestTwoRestoresInOneSecond(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, dir)
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := store.Save(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	stop()
	all, now := map[string]bool{}, time.Now()
	for range 3 {
		kept, err := store.Restore(dir, file, now)
		if err != nil || all[kept] {
			t.Errorf("restore: %q, %v", kept, err)
		}
		all[kept] = true
	}
	for kept := range all {
		if _, err := os.Stat(filepath.Join(kept, "member")); err != nil {
			t.Error(err)
		}
	}
}

// saved starts a store in which "a" is "1", and ends it. It returns a snapshot of it.
func saved(t *testing.T, dir string) (file string) {
	t.Helper()
	_, stop := start(t, dir)
	put(t, client(t, dir), "a", "1")
	file = filepath.Join(t.TempDir(), "snapshot.db")
	if err := store.Save(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	stop()
	return file
}
