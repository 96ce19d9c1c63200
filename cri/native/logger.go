package native

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// maxLogLine is the longest line of a log, in bytes, as in containerd. A longer line of a container
// becomes several, of which all but the last have the tag P.
const maxLogLine = 16 << 10

// The names of the streams and the tags of lines in a log (kubernetes/design-proposals-archive,
// node/kubelet-cri-logging.md).
const (
	stdoutStream, stderrStream = "stdout", "stderr"
	partialTag, fullTag        = "P", "F"
)

// logger writes a container's output to its log in the CRI's format. An empty path is a log that
// nobody wants. What cannot be written is lost: the container must not wait for the disk of its
// log.
type logger struct {
	path string
	now  func() time.Time

	mu   sync.Mutex
	file *os.File
	// pending has the beginnings of lines, by stream.
	pending map[string][]byte
	closed  bool
}

// openLogger opens the log to append to it, and makes its directory if it is missing.
func openLogger(path string) (*logger, error) {
	l := &logger{path: path, now: time.Now, pending: map[string][]byte{}}
	if path == "" {
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of the log: %w", err)
	}
	var err error
	if l.file, err = openLog(path); err != nil {
		return nil, err
	}
	return l, nil
}

func openLog(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	return file, nil
}

// write adds output of a stream.
func (l *logger) write(stream string, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return
	}
	rest := append(l.pending[stream], data...)
	var out []byte
	for {
		end, tag := bytes.IndexByte(rest, '\n'), fullTag
		skip := 1
		if end > maxLogLine || end < 0 && len(rest) >= maxLogLine {
			end, tag, skip = maxLogLine, partialTag, 0
		}
		if end < 0 {
			break
		}
		out = l.line(out, stream, tag, rest[:end])
		rest = rest[end+skip:]
	}
	l.pending[stream] = bytes.Clone(rest)
	if len(out) > 0 {
		_, _ = l.file.Write(out)
	}
}

// line adds a line of the log.
func (l *logger) line(out []byte, stream, tag string, text []byte) []byte {
	out = l.now().AppendFormat(out, time.RFC3339Nano)
	out = fmt.Appendf(out, " %s %s ", stream, tag)
	out = append(out, text...)
	return append(out, '\n')
}

// errLogClosed says that the container has ended, and so has its log.
var errLogClosed = errors.New("the log is complete")

// reopen makes the log anew at its path, after somebody has moved the old file away.
func (l *logger) reopen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return errLogClosed
	case l.path == "":
		return nil
	}
	file, err := openLog(l.path)
	if err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file = file
	return nil
}

// close writes what has no end of line yet, with the tag, and closes the log. The tag P says that
// the next line goes on with it. Closing twice is allowed.
func (l *logger) close(tag string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return
	}
	var out []byte
	for _, stream := range []string{stdoutStream, stderrStream} {
		if rest := l.pending[stream]; len(rest) > 0 {
			out = l.line(out, stream, tag, rest)
		}
	}
	_, _ = l.file.Write(out)
	_ = l.file.Close()
	l.file = nil
}
