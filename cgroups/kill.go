package cgroups

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// killAll kills every process in the given cgroups and below them. It does not wait for them to
// end.
func killAll(dirs []string) error {
	pids := pidsBelow(dirs)
	if slices.Contains(pids, os.Getpid()) || slices.Contains(pids, 1) {
		return fmt.Errorf("refusing to kill the agent itself, or init, in %s", strings.Join(dirs, ", "))
	}
	for _, dir := range dirs {
		// Since Linux 5.14 the unified tree kills all processes at once. This includes processes
		// forked at the same time, and processes in threaded cgroups.
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
	}
	if len(pids) == 0 {
		return nil
	}
	thaw(dirs)
	return killPids(pids, func() []int { return pidsBelow(dirs) })
}

// thaw lets frozen processes of cgroup v1 continue, so that they can die.
func thaw(dirs []string) {
	for _, dir := range dirs {
		for _, sub := range treeOf(dir) {
			_ = os.WriteFile(filepath.Join(sub, "freezer.state"), []byte("THAWED"), 0)
		}
	}
}

// killPids kills processes through pidfds, because a PID can be reused for another process. It
// opens a pidfd for each process, and uses the pidfd only if again still lists the process.
func killPids(pids []int, again func() []int) error {
	handles := map[int]int{}
	defer func() {
		for fd := range maps.Values(handles) {
			_ = unix.Close(fd)
		}
	}()
	for _, pid := range pids {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			handles[pid] = fd
		}
	}
	var errs []error
	for _, pid := range again() {
		fd, ok := handles[pid]
		if !ok {
			continue
		}
		if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("kill process %d: %w", pid, err))
		}
	}
	return errors.Join(errs...)
}

// pidsBelow returns the sorted processes of cgroups and of all cgroups below them. It leaves out
// processes of another PID namespace, which the kernel shows as 0.
func pidsBelow(dirs []string) []int {
	pids := map[int]bool{}
	for _, dir := range dirs {
		for _, sub := range treeOf(dir) {
			data, _ := os.ReadFile(filepath.Join(sub, "cgroup.procs"))
			for text := range strings.FieldsSeq(string(data)) {
				if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
					pids[pid] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(pids))
}
