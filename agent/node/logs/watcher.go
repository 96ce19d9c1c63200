package logs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watcher reports writes to logs, one write for each watch.
type watcher interface {
	// add watches an open file and returns the watch's number, which is greater than 0.
	add(f *os.File) (watch int32, err error)
	// remove ends a watch that may have ended already.
	remove(watch int32)
	// events receives the numbers of the watches that have ended with a write.
	events() <-chan []int32
	close()
}

// inotify is the kernel's watcher. A watch ends with the first write that it reports, so that a
// container that goes on writing costs nothing more.
type inotify struct {
	file    *os.File
	written chan []int32
	closing chan struct{}
	done    chan struct{}
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	w := &inotify{
		file:    os.NewFile(uintptr(fd), "inotify"),
		written: make(chan []int32),
		closing: make(chan struct{}),
		done:    make(chan struct{}),
	}
	go w.read()
	return w, nil
}

// read passes on the kernel's events until the watcher is closed.
func (w *inotify) read() {
	defer close(w.done)
	buffer := make([]byte, 64*unix.SizeofInotifyEvent)
	for {
		n, err := w.file.Read(buffer)
		if err != nil {
			return // closed
		}
		var written []int32
		for b := buffer[:n]; len(b) >= unix.SizeofInotifyEvent; {
			if mask := binary.NativeEndian.Uint32(b[4:]); mask&unix.IN_MODIFY != 0 {
				written = append(written, int32(binary.NativeEndian.Uint32(b)))
			}
			b = b[min(len(b), unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:]))):]
		}
		if len(written) == 0 {
			continue
		}
		select {
		case w.written <- written:
		case <-w.closing:
			return
		}
	}
}

func (w *inotify) add(f *os.File) (watch int32, err error) {
	err = w.control(func(fd int) error {
		// The path of the descriptor leads to the same file, even if the file's name leads
		// elsewhere now.
		n, err := unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.IN_MODIFY|unix.IN_ONESHOT)
		watch = int32(n)
		return err
	})
	if err != nil {
		return noWatch, fmt.Errorf("watch %s: %w", f.Name(), err)
	}
	return watch, nil
}

func (w *inotify) remove(watch int32) {
	_ = w.control(func(fd int) error { // the watch may have ended by itself
		_, err := unix.InotifyRmWatch(fd, uint32(watch))
		return err
	})
}

func (w *inotify) control(do func(fd int) error) error {
	conn, err := w.file.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := conn.Control(func(fd uintptr) { done = do(int(fd)) }); err != nil {
		return err
	}
	return done
}

func (w *inotify) events() <-chan []int32 { return w.written }

func (w *inotify) close() {
	close(w.closing)
	_ = w.file.Close() // nothing was written to it
	<-w.done
}

// noWatcher takes the watcher's place if the kernel cannot report writes.
type noWatcher struct{}

var errNoWatcher = errors.New("the kernel gives no notice of writes")

func (noWatcher) add(*os.File) (int32, error) { return noWatch, errNoWatcher }
func (noWatcher) remove(int32)                {}
func (noWatcher) events() <-chan []int32      { return nil }
func (noWatcher) close()                      {}
