package flock_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/flock"
)

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// inherited is the file as a child has it that has not run its program yet.
func inherited(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(fd), f.Name())
	t.Cleanup(func() { child.Close() })
	return child
}

func TestReleasedLockIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := open(t, path)
	if err := flock.Take(first); err != nil {
		t.Fatal(err)
	}
	inherited(t, first)
	if err := flock.Release(first); err != nil {
		t.Fatal(err)
	}
	if err := flock.Take(open(t, path)); err != nil {
		t.Errorf("a child that had the file keeps the lock: %v", err)
	}
}

func TestLockOfADeadProcessIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lock")
		first := open(t, path)
		if err := flock.Take(first); err != nil {
			t.Fatal(err)
		}
		child := inherited(t, first)
		first.Close() // as the kernel does when the process is killed
		time.AfterFunc(500*time.Millisecond, func() { child.Close() })
		if err := flock.Take(open(t, path)); err != nil {
			t.Errorf("the child has run its program after half a second: %v", err)
		}
	})
}

func TestHeldLockIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "lock")
		if err := flock.Take(open(t, path)); err != nil {
			t.Fatal(err)
		}
		if err := flock.Take(open(t, path)); !errors.Is(err, unix.EWOULDBLOCK) {
			t.Errorf("got %v, want EWOULDBLOCK", err)
		}
	})
}
