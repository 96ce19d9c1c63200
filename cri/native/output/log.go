package output

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// positionFile and the suffix of journals are names in the directory of an output.
const positionFile, journalSuffix = "position", ".journal"

// log writes a container's output from the journals of its streams to its log. An empty path is a
// log that nobody wants. What cannot be written, because the disk is full, is dropped: the
// container must not wait for the disk of its log.
type log struct {
	path     string
	now      func() time.Time
	logger   *slog.Logger
	journals [2]*journal

	mu    sync.Mutex
	file  *os.File // nil if nobody wants the log, or if it is closed
	state *os.File
	at    position
	// resumed says that an earlier process of berth has begun the log, and failing that the last write
	// to it failed.
	resumed, failing, closed bool
}

// openLog opens the log at a path to append to it, and completes what an earlier process of berth
// was writing. It makes the directory of the log if it is missing. dir has the journals. That a log
// which was begun cannot be opened again, or completed, is no error: its container runs, and must
// not wait either.
func openLog(dir, path string, logger *slog.Logger) (*log, error) {
	l := &log{path: path, now: time.Now, logger: logger}
	err := l.open(dir)
	if err == nil {
		err = l.complete()
	}
	if err == nil && path != "" {
		if err = os.MkdirAll(filepath.Dir(path), 0o755); err == nil {
			l.file, err = openLogFile(path, os.O_CREATE)
		}
		if err != nil && l.resumed {
			logger.Warn("a container's log cannot be opened: lines are missing until it is reopened", "log", path, "error", err)
			err = nil
		}
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return l, nil
}

// open opens the position and the journals.
func (l *log) open(dir string) error {
	var err error
	if l.state, err = os.OpenFile(filepath.Join(dir, positionFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	l.at, err = loadPosition(l.state)
	cut := errors.Is(err, errCut)
	if err != nil && !cut {
		return err
	}
	l.resumed = cut || l.at.Version != 0
	for s := range l.journals {
		path := filepath.Join(dir, Stream(s).String()+journalSuffix)
		if l.journals[s], err = openJournal(path, l.at.Done[s]); err != nil {
			return err
		}
		if cut {
			l.at.Done[s] = l.journals[s].end
		}
	}
	if cut {
		l.logger.Warn("the position in a container's output is not whole: the log goes on with what comes next",
			"log", l.path)
	}
	return l.at.save(l.state)
}

// openLogFile opens a log, which others may have moved away. A pod may be able to write where the
// logs are: a link there could lead to any file of the node, and a pipe could be waited for.
func openLogFile(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, flags|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o640)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fmt.Errorf("%s is no regular file", path), f.Close())
	}
	return f, nil
}

// complete writes what is missing of the lines that an earlier process of berth was writing when it
// was killed. If their file is gone, they are gone with it.
func (l *log) complete() error {
	begun := l.at.Begun
	if begun.To == 0 {
		return nil
	}
	data, err := l.journals[begun.Stream].read(begun.From, begun.To)
	if err != nil {
		return err
	}
	lines, used := format(data, Stream(begun.Stream), time.Unix(0, begun.Time), begun.Final)
	if int64(used) < begun.To-begun.From {
		l.logger.Warn("the journal of a container's output was cut: lines are missing in the log", "log", l.path)
	}
	if err := appendMissing(findInode(l.path, begun.Inode), begun.Size, lines); err != nil {
		l.logger.Warn("a container's log cannot be written: lines are missing", "log", l.path, "error", err)
	}
	return l.done(Stream(begun.Stream), begun.To)
}

// findInode returns the path of a log's file, which may have been moved away to a name that begins
// with the log's. It returns "" if there is no such file.
func findInode(path string, inode uint64) string {
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), filepath.Base(path)) && inodeOf(info) == inode {
			return filepath.Join(filepath.Dir(path), e.Name())
		}
	}
	return ""
}

// inodeOf returns the inode of a file, 0 if it has none.
func inodeOf(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}

// appendMissing appends what is missing of lines to the file that was so long before. It does
// nothing for an empty path, and for a file that somebody has made shorter.
func appendMissing(path string, before int64, lines []byte) error {
	if path == "" {
		return nil
	}
	f, err := openLogFile(path, 0)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if written := info.Size() - before; written >= 0 && written < int64(len(lines)) {
		_, err = f.Write(lines[written:])
	}
	return err
}

// add writes the lines of a stream that its journal has whole. The final call also writes a line
// without an end.
func (l *log) add(s Stream, final bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errLogClosed
	}
	from := l.at.Done[s]
	data, err := l.journals[s].read(from, l.journals[s].end)
	if err != nil {
		return err
	}
	at := l.now()
	lines, used := format(data, s, at, final)
	if used == 0 {
		return nil
	}
	to := from + int64(used)
	if l.file != nil {
		begun := write{Stream: int64(s), From: from, To: to, Time: at.UnixNano(), Final: final}
		if err := l.write(begun, lines); err != nil {
			return err
		}
	}
	return l.done(s, to)
}

// write writes lines, once the position says what they are. It returns an error if it has not
// begun.
func (l *log) write(begun write, lines []byte) error {
	info, err := l.file.Stat()
	if err != nil {
		return fmt.Errorf("look how long the log is: %w", err)
	}
	begun.Inode, begun.Size = inodeOf(info), info.Size()
	if err := (position{Done: l.at.Done, Begun: begun}).save(l.state); err != nil {
		return err
	}
	_, err = l.file.Write(lines)
	if err != nil {
		_ = l.file.Truncate(begun.Size) // no line is there in part
	}
	if err != nil && !l.failing {
		l.logger.Warn("a container's log cannot be written: lines are missing", "log", l.path, "error", err)
	}
	l.failing = err != nil
	return nil
}

// done moves the position on: everything of a stream up to an offset is in the log.
func (l *log) done(s Stream, to int64) error {
	l.at.Begun = write{}
	l.at.Done[s] = to
	return l.at.save(l.state)
}

// free gives back the space of what is done of a stream, once the position on the disk says so and
// nobody reads it any more.
func (l *log) free(s Stream) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.journals[s].free(l.at.Done[s])
	}
}

// errLogClosed says that the container has ended, and so has its log.
var errLogClosed = errors.New("the log is complete")

// reopen makes the log anew at its path, after somebody has moved the old file away.
func (l *log) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errLogClosed
	case l.path == "":
		return nil
	}
	file, err := openLogFile(l.path, os.O_CREATE)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	_ = l.file.Close()
	l.file = file
	return nil
}

// close closes the files. Closing twice is allowed.
func (l *log) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	files := []*os.File{l.file, l.state}
	for _, j := range l.journals {
		if j != nil {
			files = append(files, j.file)
		}
	}
	for _, f := range files {
		_ = f.Close() // a nil file refuses
	}
	l.file = nil
}
