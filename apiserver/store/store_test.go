package store_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/berthd/berth/apiserver/store"
)

// start starts the store of a folder, and ends it with the test unless the test closes it.
func start(t *testing.T, dir string) (s *store.Store, stop func()) {
	t.Helper()
	unlock, err := store.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err = store.Start(t.Context(), dir)
	if err != nil {
		unlock()
		t.Fatal(err)
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			s.Close()
			unlock()
		}
	}
	t.Cleanup(stop)
	return s, stop
}

// client returns a client of the running store.
func client(t *testing.T, dir string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{store.Endpoint(dir)}, DialTimeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func put(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := c.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// get returns a key's value, "" if there is none, and the store's revision.
func get(t *testing.T, c *clientv3.Client, key string) (string, int64) {
	t.Helper()
	r, err := c.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return "", r.Header.Revision
	}
	return string(r.Kvs[0].Value), r.Header.Revision
}

func TestStoreKeepsItsContent(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, dir)
	put(t, client(t, dir), "a", "1")
	for path, want := range map[string]os.FileMode{"": 0o700, "etcd": 0o700} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	stop()
	start(t, dir)
	if got, _ := get(t, client(t, dir), "a"); got != "1" {
		t.Errorf("after a restart the value is %q", got)
	}
}

func TestOneProcessPerDirectory(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, dir)
	if _, err := store.Lock(dir); err == nil || !strings.Contains(err.Error(), "another berth-apiserver") {
		t.Errorf("a second lock: %v", err)
	}
	stop()
	unlock, err := store.Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestStartRefusesALongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	if _, err := store.Start(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "--data-dir") {
		t.Errorf("a path that no socket may have: %v", err)
	}
}

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

func TestStartRefusesAStoreThatARestoreLeft(t *testing.T) {
	for left, want := range map[string]string{
		"etcd.restoring": "snapshot restore", "etcd.20260102T030405Z": "rename it",
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, left), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Start(t.Context(), dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %s alone: %v", left, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "etcd")); err == nil {
			t.Errorf("with %s alone: a new store was made", left)
		}
	}
}

// TestNewestKeptStoreIsNamed: of several stores that restores kept, the newest is the one to use.
func TestNewestKeptStoreIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"etcd.20200101T000000Z", "etcd.20260102T030405Z", "etcd.20260102T030405Z-2"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Prepare(dir); err == nil || !strings.Contains(err.Error(), "etcd.20260102T030405Z-2 is there") {
		t.Errorf("it says %v", err)
	}
}

// TestStartRefusesALostStore removes a store beside its keys. The server must not begin with an empty
// API unless somebody says so, and a snapshot can be restored.
func TestStartRefusesALostStore(t *testing.T) {
	dir := t.TempDir()
	etcd, pki := filepath.Join(dir, "etcd"), filepath.Join(dir, "pki")
	prepare := func(want bool) {
		t.Helper()
		if empty, err := store.Prepare(dir); err != nil || empty != want {
			t.Fatalf("the store begins empty: %t, %v; want %t", empty, err, want)
		}
	}
	prepare(true)
	if err := os.Mkdir(pki, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pki, "service-accounts.key"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, stop := start(t, dir)
	put(t, client(t, dir), "a", "1")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := store.Save(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	stop()
	prepare(false)
	if err := os.RemoveAll(etcd); err != nil {
		t.Fatal(err)
	}
	_, err := store.Start(t.Context(), dir)
	for _, want := range []string{etcd, pki, "snapshot restore", "--etcd-servers", "mkdir -m 0700 " + etcd} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without its store it says %v, which lacks %q", err, want)
		}
	}
	if _, err := os.Stat(etcd); err == nil {
		t.Error("a new store was made")
	}
	if _, err := store.Restore(dir, file, time.Now()); err != nil {
		t.Fatal(err)
	}
	_, stop = start(t, dir)
	if got, _ := get(t, client(t, dir), "a"); got != "1" {
		t.Errorf("after a restore the value is %q", got)
	}
	stop()
	if err := errors.Join(os.RemoveAll(etcd), os.Mkdir(etcd, 0o700)); err != nil {
		t.Fatal(err)
	}
	prepare(true)
	start(t, dir)
}

func TestRestoreAfterOneThatBrokeOff(t *testing.T) {
	dir := t.TempDir()
	_, stop := start(t, dir)
	put(t, client(t, dir), "a", "1")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := store.Save(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := os.MkdirAll(filepath.Join(dir, "etcd.restoring", "member"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, stop = start(t, dir) // the old store is there
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
	_, stop := start(t, dir)
	put(t, client(t, dir), "a", "1")
	file := filepath.Join(t.TempDir(), "snapshot.db")
	if err := store.Save(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	stop()
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

// TestRoomForTheNextStart shows that a store keeps room for its next start, once.
func TestRoomForTheNextStart(t *testing.T) {
	dir := t.TempDir()
	wal := filepath.Join(dir, "etcd", "member", "wal")
	_, stop := start(t, dir)
	stop()
	var info unix.Stat_t
	if err := unix.Stat(filepath.Join(wal, "0.tmp"), &info); err != nil || info.Blocks*512 < 64<<20 {
		t.Errorf("after the end it keeps %d bytes, %v", info.Blocks*512, err)
	}
	// As of a process that was killed, when it had more than one file of its log.
	if err := os.Rename(filepath.Join(wal, "0.tmp"), filepath.Join(wal, "1.tmp")); err != nil {
		t.Fatal(err)
	}
	start(t, dir)
	if _, err := os.Stat(filepath.Join(wal, "1.tmp")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed process kept is there beside what the start keeps: %v", err)
	}
}

func TestDefragment(t *testing.T) {
	dir := t.TempDir()
	s, _ := start(t, dir)
	c := client(t, dir)
	put(t, c, "kept", "1")
	const big = 1 << 20
	for range 24 {
		put(t, c, "big", strings.Repeat("x", big))
	}
	if err := s.Room(store.Creation); err != nil {
		t.Fatal(err)
	}
	_, revision := get(t, c, "kept")
	if _, err := c.Compact(t.Context(), revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	before, after, err := store.Defragment(t.Context(), dir)
	if err != nil || before < 24*big || after > before/4 {
		t.Errorf("the file had %d bytes and has %d, %v", before, after, err)
	}
	if got, _ := get(t, c, "kept"); got != "1" {
		t.Errorf("after it the value is %q", got)
	}
	if err := s.Room(store.Creation); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "etcd", "member", "snap", "db")
	var info unix.Stat_t
	if err := unix.Stat(file, &info); err != nil {
		t.Fatal(err)
	}
	if info.Blocks*512 < info.Size+big {
		t.Errorf("the new file has %d bytes and %d of the disk: no room is kept for writes", info.Size, info.Blocks*512)
	}
}
