package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/apiserver/store"
)

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
	file := saved(t, dir)
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
	_, stop := start(t, dir)
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
