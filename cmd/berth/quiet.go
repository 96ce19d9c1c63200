package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/berthd/berth/client/show"
)

// plainLog is where the log of libraries goes while a verb runs: their errors are told as those of the verb itself are, or not at all where w is nil, and
// nothing else is.
type plainLog struct{ w io.Writer }

// Enabled lets errors through.
func (p plainLog) Enabled(_ context.Context, level slog.Level) bool {
	return p.w != nil && level >= slog.LevelError
}

// Handle writes an error's text, or the message where there is none.
func (p plainLog) Handle(ctx context.Context, r slog.Record) error {
	if !p.Enabled(ctx, r.Level) {
		return nil // not every caller asks before
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
