package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path of a socket to which clients can connect, in bytes (unix(7),
// sun_path without its zero byte).
const maxSocketPath = 107

// socket is the listener on the local socket. Close removes the file, if it is still the file of
// this listener.
type socket struct {
	*net.UnixListener
	path string
	made os.FileInfo
	gid  int // -1 if no group may open it
}

// listenSocket makes the socket with mode 0660, and with the group if the group exists. It replaces
// a socket on which nobody answers. The socket gets its name only when it is ready.
func listenSocket(ctx context.Context, path, group string, log *slog.Logger) (*socket, error) {
	if !filepath.IsAbs(path) || len(path) > maxSocketPath {
		return nil, fmt.Errorf("listening on socket %q: the path must be absolute and at most %d bytes long", path,
			maxSocketPath)
	}
	s := &socket{path: path, gid: groupID(group)}
	if s.gid < 0 && group != "" {
		log.Debug("the socket's group does not exist: only root may open the socket", "group", group)
	}
	mode := os.FileMode(0o755)
	if s.gid < 0 {
		mode = 0o750
	}
	if err := os.MkdirAll(filepath.Dir(path), mode); err != nil {
		return nil, fmt.Errorf("making the socket's directory: %w", err)
	}
	if err := unclaimed(ctx, path); err != nil {
		return nil, err
	}
	if err := s.bind(); err != nil {
		return nil, fmt.Errorf("listening on socket %s: %w", path, err)
	}
	return s, nil
}

// unclaimed returns an error if somebody answers on the socket, or if the file is not a socket.
func unclaimed(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("looking at the socket: %w", err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf(
			"%s exists and is not a socket: remove it, or set another path as socket of BerthConfiguration", path)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("somebody answers on %s already: stop the other agent, or set another path as socket of "+
			"BerthConfiguration", path)
	case errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ENOENT):
		return nil
	}
	return fmt.Errorf("asking who listens on %s: %w", path, err)
}

// bind listens under a temporary name, sets owner and mode, and renames the socket. It names the
// socket through a descriptor of the directory, because the temporary name may be too long
// otherwise.
func (s *socket) bind() (err error) {
	dir, err := os.OpenFile(filepath.Dir(s.path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	passing := fmt.Sprintf(".%s.%d", filepath.Base(s.path), os.Getpid())
	full := filepath.Join(filepath.Dir(s.path), passing)
	if err := os.Remove(full); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.UnixListener, err = net.ListenUnix("unix",
		&net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), passing)})
	if err != nil {
		return err
	}
	s.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			_ = s.UnixListener.Close()
			_ = os.Remove(full)
		}
	}()
	if s.gid >= 0 {
		if err := os.Lchown(full, -1, s.gid); err != nil {
			return err
		}
	}
	if err := os.Chmod(full, 0o660); err != nil {
		return err
	}
	if s.made, err = os.Lstat(full); err != nil {
		return err
	}
	return os.Rename(full, s.path)
}

// Close stops listening and removes the socket's file.
func (s *socket) Close() error {
	if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
		_ = os.Remove(s.path)
	}
	return s.UnixListener.Close()
}

// Addr returns the socket's path.
func (s *socket) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: s.path} }

// groupID returns the id of a group, given by name or number; -1 if there is no such group.
func groupID(name string) int {
	if name == "" {
		return -1
	}
	if id, err := strconv.Atoi(name); err == nil && id >= 0 {
		return id
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return -1
	}
	id, err := strconv.Atoi(g.Gid)
	if err != nil {
		return -1
	}
	return id
}
