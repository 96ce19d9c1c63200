package shims

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
)

const (
	// endGrace is how long a shim has between SIGTERM, on which it ends in order, and SIGKILL.
	endGrace = 2 * time.Second
	// deletedSuffix is what the kernel appends to the target of /proc/PID/cwd if the directory was
	// removed (proc(5)).
	deletedSuffix = " (deleted)"
	// dialTimeout limits the check of who listens on the socket.
	dialTimeout = 3 * time.Second
)

// Containerd is whose shims are meant: those of the containerd that listens at Socket, for the
// sandboxes and containers of one of its namespaces.
type Containerd struct {
	Socket, Namespace string
}

// Shim is a shim process, and the sandbox or container that it was started for.
type Shim struct {
	PID int
	ID  string
	// Bundle is its working directory. Removed says that the directory is no more.
	Bundle  string
	Removed bool
	// Parent says that it has child processes.
	Parent bool
	// began is when it began: the process ID may be another process's later.
	began string
}

// Of returns a containerd's shims in containerd's mount namespace, by process ID: all of them, or
// only those whose bundle was removed. It returns none if nobody answers at the socket. No API
// knows of all shims, so Of looks through the processes.
func Of(ctx context.Context, c Containerd, removed bool) ([]Shim, error) {
	namespace, ok := MountNamespaceOf(ctx, c.Socket)
	if !ok {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for containerd's shims: %w", err)
	}
	parents := map[int]bool{}
	var found []Shim
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
		if s, ok := c.at(pid, namespace, removed); ok {
			found = append(found, s)
		}
	}
	for i := range found {
		found[i].Parent = parents[found[i].PID]
	}
	return found, nil
}

// at returns the process's shim, and whether it is one that is meant.
func (c Containerd) at(pid int, namespace string, removed bool) (Shim, bool) {
	s := Shim{PID: pid, began: startOf(pid)}
	cwd, err := os.Readlink(proc(pid, "cwd"))
	if err != nil {
		return Shim{}, false
	}
	if s.Bundle, s.Removed = strings.CutSuffix(cwd, deletedSuffix); removed && !s.Removed {
		return Shim{}, false
	}
	// The namespace comes first: in a container, anybody can call a process like a shim, and give it
	// a path in its arguments that hangs whoever follows it.
	if ns, err := os.Readlink(proc(pid, "ns/mnt")); err != nil || ns != namespace {
		return Shim{}, false
	}
	var ok bool
	s.ID, ok = c.id(pid)
	return s, ok
}

// End ends a shim, and then what it is the parent of, if the process is still the one that was
// found.
func End(ctx context.Context, s Shim) error {
	self, children := process{s.PID, s.began}, childrenOf(s.PID)
	if !self.still() {
		return nil
	}
	if err := endProcess(ctx, s.PID, self.still, unix.SIGTERM, unix.SIGKILL); err != nil {
		return fmt.Errorf("end the shim %d of %s: %w", s.PID, s.ID, err)
	}
	for _, child := range children {
		if err := endProcess(ctx, child.pid, child.still, unix.SIGKILL); err != nil {
			return fmt.Errorf("end process %d, which the shim %d of %s had: %w", child.pid, s.PID, s.ID, err)
		}
	}
	return nil
}

// process is a process, and when it began by the kernel's clock: no two have both.
type process struct {
	pid   int
	began string
}

func (p process) still() bool { return p.began != "" && startOf(p.pid) == p.began }

// childrenOf returns a process's children.
func childrenOf(pid int) (out []process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, ppid, ok := readStat(child); ok && ppid == pid {
			out = append(out, process{child, startOf(child)})
		}
	}
	return out
}

// startOf returns the field starttime of /proc/PID/stat (proc(5)); empty if there is no process.
func startOf(pid int) string {
	raw, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		return ""
	}
	const afterName = 19 // starttime is field 22, and the name field 2
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) <= afterName {
		return ""
	}
	return string(fields[afterName])
}

// MountNamespaceOf returns the mount namespace of the process that listens at the socket.
func MountNamespaceOf(ctx context.Context, socket string) (string, bool) {
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

// id returns what the process is the shim of, and whether it is a shim that is meant.
func (c Containerd) id(pid int) (string, bool) {
	raw, err := os.ReadFile(proc(pid, "cmdline"))
	if err != nil {
		return "", false
	}
	args := strings.Split(strings.TrimSuffix(string(raw), "\x00"), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim-") {
		return "", false
	}
	value := func(flag string) string {
		if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
			return args[i+1]
		}
		return ""
	}
	if value("-namespace") != c.Namespace || !samePath(value("-address"), c.Socket) {
		return "", false
	}
	return value("-id"), true
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

// endProcess sends the signals, each after [endGrace] without an end. It calls still after it has
// opened the process, when no other process can take the ID any more.
func endProcess(ctx context.Context, pid int, still func() bool, signals ...unix.Signal) error {
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
	for _, signal := range signals {
		if err := unix.PidfdSendSignal(fd, signal, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			return fmt.Errorf("send %s: %w", signal, err)
		}
		for deadline := time.Now().Add(endGrace); time.Now().Before(deadline) && ctx.Err() == nil; {
			polled, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 50)
			if err == nil && polled > 0 {
				return nil
			}
		}
	}
	return errors.New("it does not end")
}

func proc(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
