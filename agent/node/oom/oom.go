// Package oom watches the kernel's log for the node running out of memory.
//
// Purpose: a container's status says when the container reached its own limit. When the whole node
// is out of memory, the kernel kills any process, and only the kernel's log says so. The kubelet's
// OOM watcher (pkg/kubelet/oom) then records the event SystemOOM, and so does berth.
//
// Truth owned: none; the kernel's log is the truth.
//
// Concurrency: [Watch] runs in one goroutine. [Parse] is pure.
package oom

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// KernelLog is the file from which the kernel's log is read, one record at a time
// (Documentation/ABI/testing/dev-kmsg).
const KernelLog = "/dev/kmsg"

// maxRecord is the size of the read buffer in bytes. It is larger than any record, because a read
// into a buffer smaller than the record fails.
const maxRecord = 16 << 10

// Victim is a process that the kernel killed because the node was out of memory.
type Victim struct {
	Process string
	PID     int
	// Cgroup is the memory cgroup of the process.
	Cgroup string
}

// Parse parses a record of the kernel's log. ok is true only for a record about a victim of an
// out-of-memory of the whole node. Records that a process wrote into the log are ignored.
func Parse(record string) (v Victim, ok bool) {
	header, message, ok := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(header, ",")
	// Priorities above 7 belong to other facilities than the kernel.
	if n, err := strconv.Atoi(priority); !ok || err != nil || n > 7 {
		return Victim{}, false
	}
	rest, ok := strings.CutPrefix(message, "oom-kill:constraint=")
	if !ok || !strings.Contains(rest, ",global_oom,") {
		return Victim{}, false
	}
	// A process can have any name, so the fields after the name are searched from the end.
	_, rest, _ = strings.Cut(rest, ",task_memcg=")
	pid := strings.LastIndex(rest, ",pid=")
	task := strings.Index(rest, ",task=")
	if task < 0 || pid < task {
		return Victim{}, false
	}
	digits, _, _ := strings.Cut(rest[pid+len(",pid="):], ",")
	if v.PID, ok = number(digits); !ok {
		return Victim{}, false
	}
	v.Cgroup, v.Process = rest[:task], rest[task+len(",task="):pid]
	return v, true
}

// number reads a decimal number.
func number(s string) (int, bool) {
	n, err := strconv.Atoi(strings.TrimSpace(s))
	return n, err == nil
}

// Watch calls found for each victim that the log at path reports from now on, and returns nil when
// ctx ends. The error is a failure to open or read the log.
func Watch(ctx context.Context, path string, found func(Victim)) error {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("watching the kernel's log: %w", err)
	}
	defer context.AfterFunc(ctx, func() { f.Close() })()
	defer f.Close()
	if _, err := f.Seek(0, io.SeekEnd); err != nil && !errors.Is(err, syscall.ESPIPE) {
		return fmt.Errorf("watching the kernel's log: %w", err)
	}
	lines := bufio.NewReaderSize(overwritten{f}, maxRecord)
	for {
		line, err := lines.ReadString('\n')
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("reading the kernel's log: %w", err)
		}
		if v, ok := Parse(line); ok {
			found(v)
		}
	}
}

// overwritten continues to read after the kernel has overwritten records that were not read in
// time.
type overwritten struct{ f *os.File }

// Read implements io.Reader.
func (o overwritten) Read(p []byte) (int, error) {
	for {
		n, err := o.f.Read(p)
		if !errors.Is(err, syscall.EPIPE) {
			return n, err
		}
	}
}
