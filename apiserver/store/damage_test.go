package store_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/apiserver/store"
)

// overwrite puts bytes that mean nothing into the middle of a file.
func overwrite(path string, at int64, length int) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, length), at)
	return err
}

// TestStartRefusesADamagedStore damages a store in the ways in which disks and people do. The store
// must be refused with what to do, and a snapshot restored in its place must have the content.
func TestStartRefusesADamagedStore(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"no database":        func(dir string) error { return os.Remove(filepath.Join(dir, "snap", "db")) },
		"empty database":     func(dir string) error { return os.Truncate(filepath.Join(dir, "snap", "db"), 0) },
		"half of a database": func(dir string) error { return os.Truncate(filepath.Join(dir, "snap", "db"), 9000) },
		"other database": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "snap", "db"), bytes.Repeat([]byte("text"), 1<<16), 0o600)
		},
		"pages of the database": func(dir string) error { return overwrite(filepath.Join(dir, "snap", "db"), 8192, 1<<16) },
		"no log":                func(dir string) error { return os.RemoveAll(filepath.Join(dir, "wal")) },
		"log": func(dir string) error {
			logs, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
			if err != nil || len(logs) == 0 {
				return errors.Join(err, fs.ErrNotExist)
			}
			return overwrite(logs[0], 2000, 1000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, stop := start(t, dir)
			c := client(t, dir)
			for n := range 200 {
				put(t, c, "key"+strconv.Itoa(n), strings.Repeat("value", 100))
			}
			file := filepath.Join(t.TempDir(), "snapshot.db")
			if err := store.Save(t.Context(), dir, file); err != nil {
				t.Fatal(err)
			}
			stop()
			if err := damage(filepath.Join(dir, "etcd", "member")); err != nil {
				t.Fatal(err)
			}
			_, err := store.Start(t.Context(), dir)
			if err == nil || !strings.Contains(err.Error(), "is damaged") ||
				!strings.Contains(err.Error(), "berth-apiserver snapshot restore") {
				t.Fatalf("it says %v", err)
			}
			kept, err := store.Restore(dir, file, time.Now())
			if err != nil || kept == "" {
				t.Fatalf("restore: %q, %v", kept, err)
			}
			start(t, dir)
			if got, _ := get(t, client(t, dir), "key199"); got == "" {
				t.Error("the content is not there")
			}
		})
	}
}

// TestFirstStartThatBrokeOff shows that a store whose first start was killed is a new one.
func TestFirstStartThatBrokeOff(t *testing.T) {
	for name, size := range map[string]int64{"nothing written": 0, "a part of its first pages": 6000, "no log yet": -1} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, stop := start(t, dir)
			stop()
			db := filepath.Join(dir, "etcd", "member", "snap", "db")
			if size >= 0 {
				if err := os.Truncate(db, size); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.RemoveAll(filepath.Join(dir, "etcd", "member", "wal")); err != nil {
				t.Fatal(err)
			}
			start(t, dir)
			c := client(t, dir)
			put(t, c, "a", "1")
			if got, _ := get(t, c, "a"); got != "1" {
				t.Errorf("the value is %q", got)
			}
		})
	}
}
