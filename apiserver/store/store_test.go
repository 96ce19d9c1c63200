package store_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
