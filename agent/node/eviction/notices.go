package eviction

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// KernelNotices is the file by which the kernel tells that tasks wait for memory, under cgroup v1
// and v2 (Documentation/accounting/psi.rst).
const KernelNotices = "/proc/pressure/memory"

// stalls asks for a notice when tasks have waited for 100 ms within 2 s, at most one in that time.
// A process without CAP_SYS_RESOURCE may ask only for multiples of 2 s.
const stalls = "some 100000 2000000"

// watch calls notify at each notice of the kernel until ctx ends. It returns an error if the kernel
// gives no notices, or none any more.
func watch(ctx context.Context, file string, notify func()) error {
	psi, err := unix.Open(file, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening %s: %w", file, err)
	}
	defer func() { _ = unix.Close(psi) }()
	if _, err := unix.Write(psi, append([]byte(stalls), 0)); err != nil {
		return fmt.Errorf("asking %s for notices: %w", file, err)
	}
	var end [2]int // a pipe whose other end is closed when ctx ends
	if err := unix.Pipe2(end[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer func() { _ = unix.Close(end[0]) }()
	hangUp := func() { _ = unix.Close(end[1]) }
	stop := context.AfterFunc(ctx, hangUp)
	defer func() {
		if stop() {
			hangUp()
		}
	}()
	for {
		polled := []unix.PollFd{{Fd: int32(psi), Events: unix.POLLPRI}, {Fd: int32(end[0]), Events: unix.POLLIN}}
		_, err := unix.Poll(polled, -1)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("waiting for notices of %s: %w", file, err)
		case polled[1].Revents != 0:
			return nil
		case polled[0].Revents&unix.POLLERR != 0:
			return fmt.Errorf("waiting for notices of %s: the kernel gives no more", file)
		default:
			notify()
		}
	}
}
