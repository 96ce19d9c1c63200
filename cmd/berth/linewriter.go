package main

import (
	"bytes"
	"io"
)

// lineWriter writes whole lines, each in one write with a prefix, so that lines of several writers
// do not mix. A line longer than maxLine is written in parts, the first one with the prefix. It is
// not for concurrent use.
type lineWriter struct {
	w       io.Writer
	prefix  string
	pending []byte
	inside  bool // a part of the pending line was written
}

// Write adds a part of the text. It keeps text without a newline until the rest of the line comes
// or the line is too long.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	for {
		size := bytes.IndexByte(l.pending, '\n') + 1
		if size == 0 && len(l.pending) < maxLine {
			return len(p), nil
		}
		if size == 0 {
			size = len(l.pending)
		}
		if err := l.put(l.pending[:size]); err != nil {
			return 0, err
		}
		l.pending = l.pending[size:]
	}
}

func (l *lineWriter) put(piece []byte) error {
	line := piece
	if !l.inside {
		line = append([]byte(l.prefix), piece...)
	}
	l.inside = !bytes.HasSuffix(piece, []byte("\n"))
	_, err := l.w.Write(line)
	return err
}

// flush ends an unfinished line.
func (l *lineWriter) flush() {
	if len(l.pending) > 0 || l.inside {
		_ = l.put(append(l.pending, '\n'))
		l.pending = nil
	}
}
