package output

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepFile is the pipe from which a keeper reads, in the directory of its output.
const keepFile = "keep"

// startKeeper starts a process that holds pipes open, so that what is in them outlives berth and
// the shim. The process is head, which ends when it has read a byte from the pipe keepFile. It has
// this pipe open for both directions, so nobody else's end is an end for it. An output's directory
// is enough to end its keeper, whoever has started it. It returns nil on a machine without head.
func startKeeper(dir string, pipes []string) (*exec.Cmd, error) {
	if err := EndKeeper(dir); err != nil { // of a start that failed
		return nil, err
	}
	keep := filepath.Join(dir, keepFile)
	if err := makePipe(keep); err != nil {
		return nil, err
	}
	// Its life is not that of a call.
	cmd := exec.CommandContext(context.Background(), "head", "-c", "1")
	cmd.Env, cmd.Dir = []string{}, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	wait, err := os.OpenFile(keep, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open the pipe of a keeper: %w", err)
	}
	defer func() { _ = wait.Close() }()
	cmd.Stdin = wait
	for _, path := range pipes {
		f, err := openReader(path)
		if err != nil {
			return nil, err
		}
		defer func() { _ = f.Close() }()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	if err := cmd.Start(); errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("start what keeps a container's pipes open: %w", err)
	}
	return cmd, nil
}

// EndKeeper ends the keeper of an output's directory, if there is one.
func EndKeeper(dir string) error {
	fd, err := unix.Open(filepath.Join(dir, keepFile), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENOENT) {
		return nil // nobody reads it
	}
	if err == nil {
		_, err = unix.Write(fd, []byte{'.'})
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return fmt.Errorf("end what keeps a container's pipes open: %w", err)
	}
	return nil
}

// makePipe makes a named pipe, if it is not there.
func makePipe(path string) error {
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the pipe %s: %w", path, err)
	}
	return nil
}

// openReader opens a pipe to read it, without waiting for a writer.
func openReader(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open a container's pipe: %w", err)
	}
	return f, nil
}
