package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/berthd/berth/client/show"
)

// plainLog handles the log of libraries while a verb runs. It prints errors in the form of the
// verb's own errors, or drops them if w is nil. It drops everything else.
type plainLog struct{ w io.Writer }

// Enabled lets errors through.
func (p plainLog) Enabled(_ context.Context, level slog.Level) bool {
	return p.w != nil && level >= slog.LevelError
}

// Handle writes an error's text, or the message if there is no error.
func (p plainLog) Handle(ctx context.Context, r slog.Record) error {
	if !p.Enabled(ctx, r.Level) {
		return nil // some callers do not call Enabled first
	}
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "err" {
			text = a.Value.String()
		}
		return a.Key != "err"
	})
	_, err := fmt.Fprintln(p.w, "Error:", show.Clean(text))
	return err
}

// WithAttrs changes nothing.
func (p plainLog) WithAttrs([]slog.Attr) slog.Handler { return p }

// WithGroup changes nothing.
func (p plainLog) WithGroup(string) slog.Handler { return p }
