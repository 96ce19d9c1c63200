package volumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/silent"
)

// apartName is the name of a process of this program that does one [apartStep].
const apartName = "berth-unmount"

// apartStep is something that the server of a file system may delay, in the kernel and against
// SIGKILL: whoever drops the last reference to a mount writes what is not written yet. It is done
// in a process of its own, so that the agent can end, and its locks and sockets with it.
type apartStep string

// The steps. Ask asks the server about the mount's root. Detach takes a mount out of the tree, and
// abort does so after it has ended all requests to the server.
const (
	apartUnmount apartStep = "unmount"
	apartAsk     apartStep = "ask"
	apartDetach  apartStep = "detach"
	apartAbort   apartStep = "abort"
)

// do does the step in this process.
func (s apartStep) do(target string) error {
	switch s {
	case apartUnmount:
		return unix.Unmount(target, unix.UMOUNT_NOFOLLOW)
	case apartDetach:
		return unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	case apartAbort:
		return unix.Unmount(target, unix.MNT_DETACH|unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW)
	case apartAsk:
		root, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer closeFD(root)
		return askServer(root)
	}
	return unix.EINVAL
}

// canRun says that this program's main calls [RunApart].
var canRun atomic.Bool

// RunApart is the whole of a process that [Apart] has started: main calls it first, with os.Args,
// and exits with the code if own is true.
func RunApart(args []string) (code int, own bool) {
	canRun.Store(true)
	if len(args) != 3 || args[0] != apartName {
		return 0, false
	}
	var errno unix.Errno
	if err := apartStep(args[1]).do(args[2]); errors.As(err, &errno) {
		return int(errno), true
	}
	return 0, true
}

// Apart returns a [Deps.Apart] that runs this program again. It is nil if main has not called
// [RunApart]: a program that does not know it, such as a test, would do something else.
func Apart() func(server, step, target string) error {
	if !canRun.Load() {
		return nil
	}
	places := silent.NewPlaces()
	return func(server, step, target string) error {
		// It must not end with the agent: what it waits for goes on. A question can be killed, and has
		// no place, because it comes before what ends the others.
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if step == string(apartAsk) {
			ctx, cancel = context.WithTimeout(ctx, unmountTimeout)
		} else {
			leave, all, same := places.Try(server, server)
			if leave == nil {
				return &os.PathError{Op: step, Path: target, Err: fmt.Errorf(
					"%d processes wait for the silent server %s already, and %d for all servers", same, server, all)}
			}
			defer leave()
		}
		defer cancel()
		cmd := exec.CommandContext(ctx, "/proc/self/exe", step, target)
		cmd.Args[0], cmd.Dir, cmd.Env = apartName, "/", []string{}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err := cmd.Run()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() > 0 {
			err = unix.Errno(exit.ExitCode())
		}
		if err != nil {
			return &os.PathError{Op: step, Path: target, Err: err}
		}
		return nil
	}
}

// apart does a step where [Deps.Apart] says. server is that of the mount.
func (m *Manager) apart(server string, step apartStep, target string) error {
	if m.deps.Apart != nil {
		return m.deps.Apart(server, string(step), target)
	}
	if err := step.do(target); err != nil {
		return &os.PathError{Op: string(step), Path: target, Err: err}
	}
	return nil
}
