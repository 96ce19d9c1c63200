// Package lock keeps a second agent away from an agent's root directory.
//
// Purpose: two agents on one root directory would run every pod twice.
//
// Truth owned: the locks, which the kernel gives back when the process ends. Concurrency: a [Lock]
// is safe for concurrent use.
package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/configs"
)

// Lock has the locks that an agent holds as long as it runs. Make it with [Take].
type Lock struct {
	held []*os.File
}

// Take takes the lock of the root directory, and the lock of --lock-file if it is given. The error
// names the lock that another agent holds.
func Take(cfg *configs.Config) (*Lock, error) {
	l := &Lock{}
	paths := []string{filepath.Join(cfg.RootDir, "berth", "lock")}
	if cfg.Lock.File != "" {
		paths = append(paths, cfg.Lock.File)
	}
	for _, path := range paths {
		if err := l.take(path); err != nil {
			l.Release()
			return nil, err
		}
	}
	return l, nil
}

func (l *Lock) take(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("making the lock's directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	l.held = append(l.held, f)
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another agent holds %s: stop it, or give this one its own --root-dir: %w", path, err)
	}
	return nil
}

// Release gives everything back.
func (l *Lock) Release() {
	for _, f := range l.held {
		_ = f.Close() // closing gives the lock back
	}
}

// errContended ends the agent when somebody else wants its lock file.
var errContended = errors.New("somebody else opened the lock file, and exit-on-lock-contention is set")

// Watch ends with an error as soon as another process opens or deletes the lock file, if the config
// asks for that. In this way a host can hand over from one agent to the next
// (--exit-on-lock-contention of the kubelet). Else Watch waits for ctx.
func Watch(ctx context.Context, options configs.LockOptions) error {
	if options.File == "" || !options.ExitOnContention {
		<-ctx.Done()
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watching the lock file: %w", err)
	}
	notices := os.NewFile(uintptr(fd), "lock file notices")
	defer notices.Close()
	if _, err := unix.InotifyAddWatch(fd, options.File, unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		return fmt.Errorf("watching the lock file %s: %w", options.File, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = notices.Close() }) // ends the read
	defer stop()
	buf := make([]byte, int(unsafe.Sizeof(unix.InotifyEvent{}))+unix.NAME_MAX+1)
	if _, err := notices.Read(buf); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("watching the lock file: %w", err)
	}
	return errContended
}
