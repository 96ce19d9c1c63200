// Package oom hears from the kernel when the whole node has run out of memory.
//
// Purpose: a container that reaches its own limit is told of by its status, but when the node itself is out of memory the kernel ends any process: only its log
// says so (FEATURES row 46).
//
// Truth owned: none; the kernel's log is.
//
// Concurrency: [Watch] runs in one goroutine, [Parse] anywhere.
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

// KernelLog is where Linux gives its log, one record at a time (Documentation/ABI/testing/dev-kmsg).
const KernelLog = "/dev/kmsg"

// maxRecord is more than the longest record, in bytes; a shorter read than the record's length fails.
const maxRecord = 16 << 10

// Victim is a process that the kernel ended because the node was out of memory.
type Victim struct {
	Process string
	PID     int
	// Cgroup is the memory cgroup that it was in.
	Cgroup string
}

// Parse reads a record of the kernel's log; ok is false for all but those about a victim of the whole node. A record that a process wrote is not the kernel's
// word.
func Parse(record string) (v Victim, ok bool) {
	header, message, ok := strings.Cut(record, ";")
	priority, _, _ := strings.Cut(header, ",")
	if n, err := strconv.Atoi(priority); !ok || err != nil || n > 7 { // above are the facilities of others
		return Victim{}, false
	}
	rest, ok := strings.CutPrefix(message, "oom-kill:constraint=")
	if !ok || !strings.Contains(rest, ",global_oom,") {
		return Victim{}, false
	}
	// A process may have any name, so that what is behind it is looked for from the end.
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

// Watch calls told for each victim that the log at path tells of from now on, until ctx ends, and then returns nil. The error is one of opening or reading the
// log.
func Watch(ctx context.Context, path string, told func(Victim)) error {
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
			told(v)
		}
	}
}

// overwritten reads on where the kernel has overwritten what was not read in time.
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
