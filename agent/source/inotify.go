package source

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// notice is one event that the kernel saw in the watched directory.
type notice struct {
	watch int32
	mask  uint32
	name  string
}

// maskManifests is for the manifest directory: every event after which a file is complete, gone or
// readable (not each write). maskAbove is for a directory above a missing one: every event after
// which the missing directory may exist.
const (
	maskManifests = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE | unix.IN_CREATE |
		unix.IN_ATTRIB |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	maskAbove = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF |
		unix.IN_ONLYDIR
)

// watcher reads the kernel's notices about one directory. The general file watching library does
// not show when a file was closed after writing. This event lets the source act at once, and never
// on half a file.
type watcher struct {
	file    *os.File
	notices chan []notice
	done    chan struct{}
	closing chan struct{}

	watch   int32  // what is armed now; -1 for nothing
	watched string // path of the armed directory
}

// newWatcher starts a watcher that watches nothing yet.
func newWatcher() (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("starting inotify: %w", err)
	}
	w := &watcher{
		file:    os.NewFile(uintptr(fd), "inotify"),
		notices: make(chan []notice),
		done:    make(chan struct{}),
		closing: make(chan struct{}),
		watch:   -1,
	}
	go w.read()
	return w, nil
}

// close ends the watcher and its goroutine.
func (w *watcher) close() {
	close(w.closing)
	_ = w.file.Close()
	<-w.done
}

// read passes notices on until the watcher is closed.
func (w *watcher) read() {
	defer close(w.done)
	buffer := make([]byte, 16*1024)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return // closed
		}
		select {
		case w.notices <- parseNotices(buffer[:n]):
		case <-w.closing:
			return
		}
	}
}

// parseNotices decodes the kernel's data: records of a fixed head and a name padded with zeros.
func parseNotices(b []byte) []notice {
	var out []notice
	for len(b) >= unix.SizeofInotifyEvent {
		length := int(binary.NativeEndian.Uint32(b[12:]))
		end := min(unix.SizeofInotifyEvent+length, len(b))
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:end], []byte{0})
		out = append(out, notice{
			watch: int32(binary.NativeEndian.Uint32(b[0:])),
			mask:  binary.NativeEndian.Uint32(b[4:]),
			name:  string(name),
		})
		b = b[end:]
	}
	return out
}

// arm watches the directory path. While path cannot be watched, arm watches the nearest directory
// above it. It reports whether path itself is watched.
func (w *watcher) arm(path string) (exact bool, err error) {
	w.disarm()
	for at, mask := path, uint32(maskManifests); ; at, mask = filepath.Dir(at), maskAbove {
		err := w.add(at, mask)
		if err == nil {
			if at != path && canWatchBelow(at, path) {
				return w.arm(path) // the directory appeared in the meantime
			}
			return at == path, nil
		}
		retry := errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ENOTDIR)
		if !retry || at == filepath.Dir(at) {
			return false, fmt.Errorf("watching %s: %w", at, err)
		}
	}
}

// canWatchBelow reports whether the next directory on the way from above to path can be read now.
func canWatchBelow(above, path string) bool {
	next := path
	for filepath.Dir(next) != above && filepath.Dir(next) != next {
		next = filepath.Dir(next)
	}
	f, err := os.OpenFile(next, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// add arms one directory.
func (w *watcher) add(path string, mask uint32) error {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var watch int
	if ctlErr := conn.Control(func(fd uintptr) {
		watch, err = unix.InotifyAddWatch(int(fd), path, mask)
	}); ctlErr != nil {
		return ctlErr
	}
	if err != nil {
		return err
	}
	w.watch, w.watched = int32(watch), path
	return nil
}

// disarm stops watching. A late notice of the old watch carries the old watch's number.
func (w *watcher) disarm() {
	if w.watch < 0 {
		return
	}
	if conn, err := w.file.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(w.watch)) })
	}
	w.watch, w.watched = -1, ""
}
