package main

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// trimEvery is how often the agent releases pages of its program, first those that only the start
// needed. Some 200 faults bring back what is used, which takes about 0.02 % of a core.
const trimEvery = 10 * time.Second

// trim keeps the agent's resident memory small: at intervals it releases the mapped pages of the
// agent's own program file, until ctx ends. Pages that are needed come back from the page cache,
// one at a time, in less than a microsecond each. Pages that only parsing flags, registering types
// and taking over pods needed do not come back; they are most of about 30 MB. Neither do those of a
// garbage collection, which reads the tables of every function that waits on some stack: 6 MB, in
// an idle agent once in a minute.
func trim(ctx context.Context, log *slog.Logger) {
	ticker := time.NewTicker(trimEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := dropProgramPages(); err != nil {
			log.Debug("pages of the program not given back", "err", err)
			return
		}
	}
}

// dropProgramPages unmaps the resident pages of this program's read-only mappings (madvise(2),
// MADV_DONTNEED: the kernel reads them again from the file when they are used). It never changes
// writable mappings.
func dropProgramPages() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program's file: %w", err)
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return fmt.Errorf("reading the memory map: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		start, length, ok := readOnlyMapping(lines.Text(), exe)
		if !ok {
			continue
		}
		// Without this, one read can map 2 MiB again, where the page cache has the file in such pieces. A
		// kernel that has no huge pages refuses it (EINVAL).
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_NOHUGEPAGE)
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, start, length, unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("giving back a mapping of %s: %w", exe, errno)
		}
	}
	return lines.Err()
}

// readOnlyMapping parses a line of /proc/self/maps (proc(5)). ok is true for a private mapping of
// file that cannot be written.
func readOnlyMapping(line, file string) (start, length uintptr, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 6 || fields[5] != file || (fields[1] != "r-xp" && fields[1] != "r--p") {
		return 0, 0, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	a, errA := strconv.ParseUint(from, 16, 64)
	b, errB := strconv.ParseUint(to, 16, 64)
	if errA != nil || errB != nil || b <= a {
		return 0, 0, false
	}
	return uintptr(a), uintptr(b - a), true
}
