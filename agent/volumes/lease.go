package volumes

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// A process in a container can hold a lease on a file that it sees and that is its user's: see
// F_SETLEASE in fcntl(2). An open that conflicts with the lease waits until the holder gives it up,
// at most 45 s (/proc/sys/fs/lease-break-time). Then the holder can take another lease. So files
// that containers see are opened with O_NONBLOCK. Such an open asks the holder, too, but fails at
// once. For regular files, O_NONBLOCK has no other effect.

// openShared opens a file beneath root that containers see, too. It follows no symbolic link at the
// path's end, and waits for no holder of a lease.
func openShared(root *os.Root, name string, flags int, mode fs.FileMode) (*os.File, error) {
	file, err := root.OpenFile(name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK, mode)
	if err != nil {
		return nil, leased(name, err)
	}
	return file, nil
}

// leased returns the error of an open with O_NONBLOCK. It says so if a lease is the cause.
func leased(name string, err error) error {
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("a process holds a lease on %s: %w", name, err)
	}
	return err
}

// sameContent reports whether a regular file beneath root, which containers see, has this content.
// A lease that is held for reading stays.
func sameContent(root *os.Root, name string, content []byte) (bool, error) {
	file, err := openShared(root, name, os.O_RDONLY, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() != int64(len(content)) {
		return false, err
	}
	have := make([]byte, len(content))
	_, err = io.ReadFull(file, have)
	return err == nil && bytes.Equal(have, content), nil
}
