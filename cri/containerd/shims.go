package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/retry"
)

const (
	// shimSettle is how long a shim must have been without its directory before it counts as
	// forgotten. When a shim ends, containerd removes the directory a moment before the process has
	// ended.
	shimSettle = 500 * time.Millisecond
	// shimGrace is how long a forgotten shim has between SIGTERM, on which it ends in order, and
	// SIGKILL.
	shimGrace = 2 * time.Second
	// deletedSuffix is what the kernel appends to the target of /proc/PID/cwd if the directory was
	// removed (proc(5)).
	deletedSuffix = " (deleted)"
	// dialTimeout limits the check of who listens on the socket.
	dialTimeout = 3 * time.Second
)

// EndForgottenShims ends the shim processes that containerd started for a sandbox and then forgot,
// and returns their number. Containerd kills "containerd-shim-… start" when the caller of
// RunPodSandbox goes away (an agent that is killed, a deadline). If that command had already
// started its daemon, the daemon stays without limit: it is in no list of containerd, and its
// directory is removed (seen on 2.4.2).
//
// No API reaches the daemon, so EndForgottenShims looks through the processes. It looks for a shim
// of this containerd, in containerd's mount namespace, whose working directory (its bundle) was
// removed some time ago and that has no child. It leaves a shim with children alone and logs it,
// because what runs in it may still be in use. If the runtime is not containerd, there are none.
func (r *Runtime) EndForgottenShims(ctx context.Context) (int, error) {
	found, err := forgottenShims(ctx, r.socket)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	if !retry.Sleep(ctx, shimSettle) {
		return 0, ctx.Err()
	}
	again, err := forgottenShims(ctx, r.socket)
	if err != nil {
		return 0, err
	}
	var ended int
	var errs []error
	for _, s := range again {
		switch {
		case !slices.Contains(found, s):
		case s.parent:
			const message = "a shim that containerd has forgotten still has a container's process: " +
				"end it by hand if nobody needs it"
			r.cfg.Logger.Warn(message, "pid", s.pid, "id", s.id)
		default:
			if err := endProcess(ctx, s.pid, func() bool { return shimAt(s.pid, r.socket) == s.shim }); err != nil {
				err = fmt.Errorf("end the shim %d of sandbox %s, which containerd has forgotten: %w", s.pid, s.id, err)
				errs = append(errs, err)
				continue
			}
			r.cfg.Logger.Warn("containerd had forgotten a shim; it is ended now", "pid", s.pid, "id", s.id)
			ended++
		}
	}
	return ended, errors.Join(errs...)
}

// ForgottenShims returns the process IDs of the shims that [Runtime.EndForgottenShims] would check,
// and changes nothing. A shim that containerd is just removing may be among them.
func (r *Runtime) ForgottenShims(ctx context.Context) ([]int, error) {
	found, err := forgottenShims(ctx, r.socket)
	var pids []int
	for _, s := range found {
		pids = append(pids, s.pid)
	}
	return pids, err
}

// shim is a shim process and the sandbox or container that it was started for.
type shim struct {
	pid int
	id  string
}

// orphan is a forgotten shim; parent says that it has child processes.
type orphan struct {
	shim
	parent bool
}

// forgottenShims returns the shims of the containerd at socket that have no directory, by process
// ID. It returns none if nobody answers at the socket.
func forgottenShims(ctx context.Context, socket string) ([]orphan, error) {
	namespace, ok := mountNamespaceOf(ctx, socket)
	if !ok {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for shims that containerd has forgotten: %w", err)
	}
	parents := map[int]bool{}
	var found []orphan
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		comm, ppid, ok := readStat(pid)
		if !ok {
			continue
		}
		parents[ppid] = true
		if comm != "containerd-shim" {
			continue
		}
		cwd, err := os.Readlink(proc(pid, "cwd"))
		if err != nil || !strings.HasSuffix(cwd, deletedSuffix) {
			continue
		}
		// The namespace comes first: in a container, anybody can call a process like a shim, and give
		// it a path in its arguments that hangs whoever follows it.
		if ns, err := os.Readlink(proc(pid, "ns/mnt")); err != nil || ns != namespace {
			continue
		}
		if s := shimAt(pid, socket); s != (shim{}) {
			found = append(found, orphan{shim: s})
		}
	}
	for i := range found {
		found[i].parent = parents[found[i].pid]
	}
	return found, nil
}

// mountNamespaceOf returns the mount namespace of the process that listens at the socket.
func mountNamespaceOf(ctx context.Context, socket string) (string, bool) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", socket)
	if err != nil {
		return "", false
	}
	defer func() { _ = conn.Close() }()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return "", false
	}
	raw, err := unixConn.SyscallConn()
	if err != nil {
		return "", false
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || peerErr != nil {
		return "", false
	}
	namespace, err := os.Readlink(proc(int(peer.Pid), "ns/mnt"))
	return namespace, err == nil
}

// shimAt returns the process's shim if it serves the containerd at socket in the CRI's namespace,
// or else the zero value.
func shimAt(pid int, socket string) shim {
	raw, err := os.ReadFile(proc(pid, "cmdline"))
	if err != nil {
		return shim{}
	}
	args := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") {
		return shim{}
	}
	value := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	if value("-namespace") != criNamespace || !samePath(value("-address"), socket) {
		return shim{}
	}
	return shim{pid: pid, id: value("-id")}
}

// samePath reports whether two paths lead to the same place. On most hosts /var/run is a link to
// /run.
func samePath(a, b string) bool {
	if a == b {
		return true
	}
	resolvedA, errA := filepath.EvalSymlinks(a)
	resolvedB, errB := filepath.EvalSymlinks(b)
	return errA == nil && errB == nil && resolvedA == resolvedB
}

// statHead is how many bytes of /proc/PID/stat have a name, of 64 bytes at most, and the two fields
// behind it.
const statHead = 128

// readStat returns a process's name, which the kernel cuts off at 15 bytes, and its parent
// (proc(5), /proc/PID/stat). It reads no more than that of the file: each round asks about each
// process of the machine.
func readStat(pid int) (comm string, ppid int, ok bool) {
	f, err := os.Open(proc(pid, "stat"))
	if err != nil {
		return "", 0, false
	}
	defer f.Close()
	raw := make([]byte, statHead)
	n, err := f.Read(raw)
	if err != nil {
		return "", 0, false
	}
	raw = raw[:n]
	open, end := bytes.IndexByte(raw, '('), bytes.LastIndexByte(raw, ')')
	if open < 0 || end < open {
		return "", 0, false
	}
	fields := bytes.Fields(raw[end+1:])
	if len(fields) < 2 {
		return "", 0, false
	}
	ppid, err = strconv.Atoi(string(fields[1]))
	return string(raw[open+1 : end]), ppid, err == nil
}

// endProcess sends SIGTERM and, after [shimGrace], SIGKILL. It calls still after it has opened the
// process, when no other process can take the ID any more.
func endProcess(ctx context.Context, pid int, still func() bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the process: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if !still() {
		return nil
	}
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			return fmt.Errorf("send %s: %w", signal, err)
		}
		for deadline := time.Now().Add(shimGrace); time.Now().Before(deadline) && ctx.Err() == nil; {
			polled, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 50)
			if err == nil && polled > 0 {
				return nil
			}
		}
	}
	return errors.New("it does not end")
}

func proc(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
