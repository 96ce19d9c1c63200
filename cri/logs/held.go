package logs

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A runtime that was asked to reopen a log may have some lines left for the old file when the new
// one has its first line already. heldPause is the time between two looks whether the runtime has
// closed the old file, and heldTries is how often a follower looks: a writer that keeps the file
// open for ever must not stop it.
const (
	heldPause = 20 * time.Millisecond
	heldTries = 500
)

// settle waits until nobody writes to a file that has a successor. It returns an error only if the
// context ends.
func settle(ctx context.Context, f *os.File) error {
	for range heldTries {
		if !held(f) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(heldPause):
		}
	}
	return nil
}

// held reports whether a process has a file open for writing. It is false where the kernel does not
// say so: for a reader that may not ask, and on a file system without leases.
func held(f *os.File) bool {
	conn, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var leaseErr error
	err = conn.Control(func(fd uintptr) {
		// A read lease is refused with EAGAIN while somebody writes (fcntl(2), F_SETLEASE).
		if _, leaseErr = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_RDLCK); leaseErr == nil {
			_, leaseErr = unix.FcntlInt(fd, unix.F_SETLEASE, unix.F_UNLCK)
		}
	})
	return err == nil && errors.Is(leaseErr, unix.EAGAIN)
}
