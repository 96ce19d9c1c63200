// Package flock locks files and directories for one process.
//
// Purpose: a lock that its holder has given back, or that has died, is free for the next one, which
// flock(2) alone does not promise: a child that is about to run another program has the holder's
// open files, and so its locks, until then. On a busy machine that takes a while.
//
// Truth owned: none; the kernel has the locks, and gives them back when a process ends.
// Concurrency: the functions are safe for concurrent use.
package flock

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// patience is how long a lock is waited for that a child of its last holder may still have.
	patience = time.Second
	// pause is the wait between two tries.
	pause = 10 * time.Millisecond
)

// Take locks an open file or directory for this open file alone. If another one has the lock, and
// keeps it for a second, the error is [unix.EWOULDBLOCK].
func Take(f *os.File) error {
	for began := time.Now(); ; time.Sleep(pause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > patience {
			return err
		}
	}
}

// Release gives the lock of an open file back, also if a child has the file, too, and closes it.
func Release(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}
