package logging

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"sync"
)

// split sends the records of a level and higher to one handler, and all others to another one.
type split struct {
	info, errors slog.Handler
	from         slog.Level
}

// Enabled lets everything through; the filter before the handler decides.
func (split) Enabled(context.Context, slog.Level) bool { return true }

// Handle writes a record to its stream.
func (s split) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= s.from {
		return s.errors.Handle(ctx, r)
	}
	return s.info.Handle(ctx, r)
}

// WithAttrs returns a handler with the attributes on both streams.
func (s split) WithAttrs(attrs []slog.Attr) slog.Handler {
	s.info, s.errors = s.info.WithAttrs(attrs), s.errors.WithAttrs(attrs)
	return s
}

// WithGroup returns a handler with the group on both streams.
func (s split) WithGroup(name string) slog.Handler {
	s.info, s.errors = s.info.WithGroup(name), s.errors.WithGroup(name)
	return s
}

// buffer is a buffered writer for lines. It never writes a part of a line.
type buffer struct {
	mu sync.Mutex
	to *bufio.Writer
}

func newBuffer(to io.Writer, size int) *buffer { return &buffer{to: bufio.NewWriterSize(to, size)} }

// Write keeps a line, after it has written the lines before if they leave no room.
func (b *buffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(line) > b.to.Available() {
		if err := b.to.Flush(); err != nil {
			return 0, err
		}
	}
	return b.to.Write(line)
}

// Flush writes everything that is kept. An error stays, and the next Write returns it.
func (b *buffer) Flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.to.Flush()
}
