package main

import (
	"bytes"
	"io"
)

// lineWriter writes whole lines, each in one write with a prefix, so that lines of several writers do not mix. It is not for concurrent use.
type lineWriter struct {
	w       io.Writer
	prefix  string
	pending []byte
}

// Write takes a piece of text; what does not end in a newline is kept until the rest of the line comes or grows too long.
func (l *lineWriter) Write(p []byte) (int, error) {
	l.pending = append(l.pending, p...)
	for {
		end := bytes.IndexByte(l.pending, '\n')
		if end < 0 && len(l.pending) < maxLine {
			return len(p), nil
		}
		if end < 0 {
			end = len(l.pending) - 1
		}
		line := append([]byte(l.prefix), l.pending[:end+1]...)
		l.pending = l.pending[end+1:]
		if _, err := l.w.Write(line); err != nil {
			return 0, err
		}
	}
}

// flush writes what is left of an unfinished line.
func (l *lineWriter) flush() {
	if len(l.pending) > 0 {
		_, _ = l.w.Write(append(append([]byte(l.prefix), l.pending...), '\n'))
		l.pending = nil
	}
}
