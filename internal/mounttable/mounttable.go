// Package mounttable reads the mounts of this process's mount namespace.
//
// Purpose: one reader that no container can make fail, and that costs little where thousands of
// mounts are and a few are asked for. A line of the kernel's table has the path of
// the mounted directory in its file system. A container that renames the directory of its subPath
// makes that path longer than any path may be, and the reader of moby/sys/mountinfo, which parses
// here, fails at a line of 64 KiB, whichever mounts it is asked for.
//
// Truth owned: none, the kernel has it. Concurrency: the functions are safe for concurrent use.
package mounttable

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// TooLong stands for the Root of a mount whose path in its file system is longer than paths may be
// (PATH_MAX). No path begins so.
const TooLong = "(too-long)"

// maxPath bounds a path in a line, which has some characters as octal escapes of four bytes.
// Shorter lines are left as they are.
const maxPath = 4 * unix.PathMax

// Mounts returns all mounts, in the kernel's order. A mount whose mount point is too long for any
// path is left out, because nobody can name it. With an error of the kernel's, the mounts before it
// are returned: the kernel names an NFS mount by its path on the server, and ends the table with
// ENAMETOOLONG where one is longer than a page.
func Mounts() ([]*mountinfo.Info, error) { return read(func([]byte) bool { return true }) }

// Beneath returns the mounts on dir and beneath it, in the kernel's order. dir is absolute, clean
// and without symbolic links. Beneath parses no other line of the table.
func Beneath(dir string) ([]*mountinfo.Info, error) {
	on := escape(dir)
	below := []byte(strings.TrimSuffix(on, "/") + "/")
	return read(func(point []byte) bool { return string(point) == on || bytes.HasPrefix(point, below) })
}

// On returns the mounts on path itself, the last of which is on top. path is like that of
// [Beneath].
func On(path string) ([]*mountinfo.Info, error) {
	on := escape(path)
	return read(func(point []byte) bool { return string(point) == on })
}

// ErrNone is the error of [Of] for a path that lies on no mount.
var ErrNone = errors.New("is on no mount")

// Of returns the mount that path lies on: the innermost, and the last of several at one point. path
// is like that of [Beneath].
func Of(path string) (*mountinfo.Info, error) {
	within := []byte(escape(path))
	mounts, err := read(func(point []byte) bool {
		rest, ok := bytes.CutPrefix(within, point)
		return ok && (len(rest) == 0 || rest[0] == '/' || string(point) == "/")
	})
	if err != nil {
		return nil, err
	}
	var of *mountinfo.Info
	for _, m := range mounts {
		if of == nil || len(m.Mountpoint) >= len(of.Mountpoint) {
			of = m
		}
	}
	if of == nil {
		return nil, fmt.Errorf("%s %w", path, ErrNone)
	}
	return of, nil
}

// escape returns a path as the kernel writes it into the table.
func escape(path string) string {
	return strings.NewReplacer(" ", `\040`, "\t", `\011`, "\n", `\012`, `\`, `\134`).Replace(path)
}

// read reads this thread's table. at selects the mount points whose lines are parsed.
func read(at func(point []byte) bool) ([]*mountinfo.Info, error) {
	// A thread can have a mount namespace of its own.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	table, err := os.Open("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer table.Close()
	return parse(table, at)
}

// parse reads a table with lines of any length.
func parse(table io.Reader, at func(point []byte) bool) ([]*mountinfo.Info, error) {
	var short bytes.Buffer
	var line []byte
	for r := bufio.NewReader(table); ; {
		var err error
		line, err = readLine(r, line[:0])
		if at(pointOf(line)) {
			short.Write(shorten(line))
		}
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		mounts, wrong := mountinfo.GetMountsFromReader(&short, nil)
		return mounts, cmp.Or(err, wrong)
	}
}

// pointOf returns the mount point of a line, escaped.
func pointOf(line []byte) []byte {
	for range pointField {
		_, line, _ = bytes.Cut(line, []byte(" "))
	}
	point, _, _ := bytes.Cut(line, []byte(" "))
	return point
}

// readLine appends a line to line, and of each of its fields only so much that [shorten] sees that
// it is too long: a container can make one of any length. Nearly all lines come in one piece, which
// is shorter than maxPath.
func readLine(r *bufio.Reader, line []byte) ([]byte, error) {
	part, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return append(line, part...), err
	}
	for field := 0; ; part, err = r.ReadSlice('\n') {
		for _, b := range part {
			if b == ' ' {
				field = 0
			} else if field++; field > maxPath+1 && b != '\n' {
				continue
			}
			line = append(line, b)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// The parts of a line (proc_pid_mountinfo(5)), as far as a container has a say in them.
const (
	rootField  = 3
	pointField = 4
)

// shorten returns a line that the parser takes, or nothing for a mount that nobody can name.
func shorten(line []byte) []byte {
	if len(line) <= maxPath {
		return line
	}
	fields := bytes.Split(line, []byte(" "))
	for i, field := range fields {
		switch {
		case i == rootField && len(field) > maxPath:
			fields[i] = []byte(TooLong)
		case i == pointField && len(field) > maxPath:
			return nil
		case i == len(fields)-1 && len(field) > unix.PathMax: // the file system's options, cut short
			fields[i] = append(field[:unix.PathMax:unix.PathMax], '\n')
		}
	}
	return bytes.Join(fields, []byte(" "))
}
