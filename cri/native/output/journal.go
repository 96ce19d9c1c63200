package output

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// maxFill is how much output goes to a journal at once: what a pipe holds by default.
	maxFill = 64 << 10
	// freeAfter is how much of a journal may be done before its space is given back.
	freeAfter = 64 << 10
)

// journal has the output of a stream that is not in the log yet. A byte has the same offset in it
// for good: what is done becomes a hole, so the file never takes much space. One goroutine fills
// it.
type journal struct {
	file *os.File
	// end is how many bytes have come, and freed up to where there is a hole.
	end, freed int64
}

// openJournal opens the journal of a stream of which some bytes are done. If the file has fewer, it
// was cut, and what comes next still gets new offsets.
func openJournal(path string, done int64) (*journal, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal of the output: %w", err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the journal of the output: %w", err), f.Close())
	}
	return &journal{file: f, end: max(info.Size(), done)}, nil
}

// fill waits for output and moves it from the pipe to the journal. It returns 0 when every writer
// has closed the pipe. The kernel moves the bytes, so a kill of this process loses none.
func (j *journal) fill(pipe *os.File) (int64, error) {
	conn, err := pipe.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("read the output: %w", err)
	}
	var moved int64
	var failed error
	err = conn.Read(func(fd uintptr) bool {
		at := j.end
		moved, failed = unix.Splice(int(fd), nil, int(j.file.Fd()), &at, maxFill, unix.SPLICE_F_NONBLOCK)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err = errors.Join(err, failed); err != nil {
		return 0, fmt.Errorf("move the output to its journal: %w", err)
	}
	j.end += moved
	return moved, nil
}

// read returns the bytes from one offset to another.
func (j *journal) read(from, to int64) ([]byte, error) {
	data := make([]byte, to-from)
	n, err := j.file.ReadAt(data, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the journal of the output: %w", err)
	}
	return data[:n], nil
}

// free gives back the space of what is done. A file system without holes keeps it until the
// container is removed.
func (j *journal) free(done int64) {
	if done-j.freed < freeAfter {
		return
	}
	err := unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, j.freed, done-j.freed)
	if err == nil {
		j.freed = done
	}
}
