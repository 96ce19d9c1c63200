// Package lock keeps a second agent away from what an agent alone may use.
//
// Purpose: two agents on one root directory, manifest directory, directory of logs or cgroup would
// run every pod twice, or remove each other's pods. The root directory's lock is a file of the
// agent. The locks of the other directories are files in a directory of root's, by the directories'
// numbers: nothing lies in a directory that a kubelet reads, too, and nobody but root can take a
// lock, as everybody can who may read a directory. The lock of a port is that another agent listens
// there. A kubelet takes no such locks, and these locks do not stop it.
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
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/flock"
)

// sharedLocks has the locks of directories that agents with other root directories may use, too.
const sharedLocks = "/run/berth-locks"

// Lock has the locks that an agent holds as long as it runs. Make it with [Take].
type Lock struct {
	// shared is where the locks of directories are.
	shared string

	mu sync.Mutex
	// held has the locked files by path.
	held map[string]*os.File
	// dirs are handles of the directories that are locked by their numbers. While a handle is open, no
	// other directory gets the number.
	dirs []int
}

// Take takes the lock of the root directory, the lock of --lock-file if it is given, and those of
// the manifest directory and of the directory of the pods' logs, which it makes if there is none.
// The error names the lock that another agent holds, and that agent. A manifest directory that does
// not exist yet is not locked. That another agent serves one of the ports is an error, too.
func Take(ctx context.Context, cfg *configs.Config) (*Lock, error) {
	return takeIn(ctx, cfg, sharedLocks)
}

func takeIn(ctx context.Context, cfg *configs.Config, shared string) (*Lock, error) {
	l := &Lock{shared: shared, held: map[string]*os.File{}}
	if err := l.takeAll(ctx, cfg); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

func (l *Lock) takeAll(ctx context.Context, cfg *configs.Config) error {
	if err := l.file(rootLock(cfg.RootDir), "the root directory "+cfg.RootDir, "--root-dir"); err != nil {
		return err
	}
	if file := cfg.Lock.File; file != "" {
		if err := l.file(file, "the lock file "+file, "--lock-file"); err != nil {
			return err
		}
	}
	logs := cfg.Kubelet.PodLogsDir
	if logs != "" {
		if err := os.MkdirAll(logs, 0o755); err != nil {
			return fmt.Errorf("making the directory of the pods' logs: %w", err)
		}
	}
	err := errors.Join(
		l.dir(cfg.Kubelet.StaticPodPath, "the manifest directory "+cfg.Kubelet.StaticPodPath, "staticPodPath"),
		l.dir(logs, "the directory of the pods' logs "+logs, "podLogsDir"))
	for _, port := range cfg.Ports() {
		err = errors.Join(err, Port(ctx, port))
	}
	return err
}

// Cgroup takes the lock of the cgroup that has the cgroups of all pods. dir is its directory in one
// hierarchy. A second call with the same directory does nothing.
func (l *Lock) Cgroup(dir string) error { return l.dir(dir, "the cgroup "+dir, "cgroupRoot") }

// rootLock returns the path of a root directory's lock.
func rootLock(rootDir string) string { return filepath.Join(rootDir, "berth", "lock") }

// file locks a file, which it makes with its directory if there is none.
func (l *Lock) file(path, what, setting string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("making the lock's directory: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("opening the lock: %w", err)
	}
	return l.take(f, what, setting)
}

// dir locks a directory, or a file that must not change. Nothing is locked if the path is empty or
// does not exist.
func (l *Lock) dir(path, what, setting string) error {
	if path == "" {
		return nil
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil // who reads the directory reports this, and goes on when it changes
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		file := filepath.Join(l.shared, fmt.Sprintf("%d-%d", st.Dev, st.Ino))
		if l.holds(file) {
			return unix.Close(fd)
		}
		err = l.file(file, what, setting)
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dirs = append(l.dirs, fd)
	return nil
}

func (l *Lock) holds(path string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held[path] != nil
}

// take locks an open file and keeps it, or closes it. what names the locked thing, and setting is
// what gives an agent its own.
func (l *Lock) take(f *os.File, what, setting string) error {
	if err := flock.Take(f); err != nil {
		defer f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return &heldError{what: what, setting: setting, by: holderOf(f)}
		}
		return fmt.Errorf("locking %s: %w", what, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[f.Name()] = f
	return nil
}

// heldError is the error of a lock that another agent holds.
type heldError struct {
	what, setting string
	by            Holder
}

// Error names the lock, its holder, and what to do.
func (e *heldError) Error() string {
	return fmt.Sprintf("another agent%s holds %s: stop it, or give this one its own %s", e.by, e.what, e.setting)
}

// Release gives everything back.
func (l *Lock) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.held {
		_ = flock.Release(f) // the end of the process gives it back, too
	}
	for _, fd := range l.dirs {
		_ = unix.Close(fd)
	}
	l.dirs = nil
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
