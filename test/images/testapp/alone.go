package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// alone becomes the command, which keeps the lock until its last process has ended, however it
// ends. So an instance of a container that finds the lock taken runs beside another one.
func alone(args []string) error {
	if len(args) < 4 {
		return errors.New("alone needs a lock, a file, a text and a command")
	}
	lock, trace, text, command := args[0], args[1], args[2], args[3:]
	program, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	// Without O_CLOEXEC the command has it, too.
	fd, err := unix.Open(lock, unix.O_RDWR|unix.O_CREAT, 0o666)
	if err != nil {
		return fmt.Errorf("open %s: %w", lock, err)
	}
	switch err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		holder, _ := os.ReadFile(lock)
		if err := write([]string{trace, "overlap", text, "while", string(holder), "runs"}); err != nil {
			return err
		}
	case err != nil:
		return fmt.Errorf("lock %s: %w", lock, err)
	default:
		if err := os.WriteFile(lock, []byte(text), 0o666); err != nil {
			return err
		}
	}
	if err := write([]string{trace, "start", text}); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, command, os.Environ()))
}
