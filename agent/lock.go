package agent

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

// lock keeps a second agent off the root directory, and takes --lock-file where it is given.
func lock(cfg *configs.Config) (unlock func(), err error) {
	paths := []string{filepath.Join(cfg.RootDir, "berth", "lock")}
	if cfg.Lock.File != "" {
		paths = append(paths, cfg.Lock.File)
	}
	var held []*os.File
	unlock = func() {
		for _, f := range held {
			_ = f.Close() // closing gives the lock back
		}
	}
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			unlock()
			return nil, fmt.Errorf("making the lock's directory: %w", err)
		}
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			unlock()
			return nil, fmt.Errorf("opening the lock: %w", err)
		}
		held = append(held, f)
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			unlock()
			return nil, fmt.Errorf("another agent holds %s: stop it, or give this one its own --root-dir: %w", path, err)
		}
	}
	return unlock, nil
}

// errContended ends the agent when somebody else wants its lock file.
var errContended = errors.New("somebody else opened the lock file, and exit-on-lock-contention is set")

// watchLock ends with an error as soon as another process opens or deletes the lock file, where the config asks for that (row 12): a host can so
// hand over from one agent to the next.
func (a *Agent) watchLock(ctx context.Context) error {
	if a.cfg.Lock.File == "" || !a.cfg.Lock.ExitOnContention {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watching the lock file: %w", err)
	}
	notices := os.NewFile(uintptr(fd), "lock file notices")
	defer notices.Close()
	if _, err := unix.InotifyAddWatch(fd, a.cfg.Lock.File, unix.IN_OPEN|unix.IN_DELETE_SELF); err != nil {
		return fmt.Errorf("watching the lock file %s: %w", a.cfg.Lock.File, err)
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
