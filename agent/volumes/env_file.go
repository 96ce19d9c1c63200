package volumes

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/beneath"
)

// openRegular opens a regular file beneath the directory dir for reading. Symbolic links are
// followed as long as they stay beneath dir, unless resolve (see [beneath.Open]) refuses them. A
// lease that keeps others from reading the file is an error.
func openRegular(dir, name string, resolve uint64) (*os.File, error) {
	top, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	path := filepath.Join(dir, name)
	fd, err := beneath.Open(int(top.Fd()), name, unix.O_PATH, resolve)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer closeFD(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	// It is opened for reading only now: to open a pipe or a device would have had an effect.
	file, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, leased(path, err)
	}
	return file, nil
}

// maxEnvFile bounds an environment file, in bytes. No process can have a larger environment.
const maxEnvFile = 2 << 20

// ReadEnvFile returns the content of a file of environment variables in a volume, for fileKeyRef.
// Containers wrote the file: only a regular file is read, and no symbolic link leads out of the
// volume. A missing file is [fs.ErrNotExist].
func (m *Manager) ReadEnvFile(volume Mount, path string) (string, error) {
	if volume.HostPath == "" {
		return "", errors.New("the volume has no files on the node")
	}
	file, err := openRegular(volume.HostPath, path, 0)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxEnvFile+1))
	if err != nil {
		return "", err
	}
	if len(content) > maxEnvFile {
		return "", fmt.Errorf("%s is larger than %d bytes", file.Name(), maxEnvFile)
	}
	return string(content), nil
}
