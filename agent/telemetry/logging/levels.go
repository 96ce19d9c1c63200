package logging

import (
	"context"
	"log/slog"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"

	logsapi "k8s.io/component-base/logs/api/v1"
)

// levels decides which records are written: those up to the verbosity, and those of a source file
// up to the level that the file has (logging.vmodule). Its zero value writes V(0).
type levels struct {
	verbosity atomic.Uint32
	modules   atomic.Pointer[[]logsapi.VModuleItem]
}

// setModules keeps the items that have a level.
func (l *levels) setModules(items []logsapi.VModuleItem) {
	var modules []logsapi.VModuleItem
	for _, item := range items {
		if item.Verbosity > 0 {
			modules = append(modules, item)
		}
	}
	l.modules.Store(&modules)
}

// vOf converts a level of slog to a number of -v.
func vOf(level slog.Level) int64 { return max(0, -int64(level)) }

// everywhere reports whether records of the level are written whatever file they come from.
func (l *levels) everywhere(level slog.Level) bool { return vOf(level) <= int64(l.verbosity.Load()) }

// somewhere reports whether there may be a file whose records of the level are written.
func (l *levels) somewhere(level slog.Level) bool {
	if l.everywhere(level) {
		return true
	}
	for _, item := range l.items() {
		if vOf(level) <= int64(item.Verbosity) {
			return true
		}
	}
	return false
}

// from reports whether a record of the level that was made at pc is written.
func (l *levels) from(level slog.Level, pc uintptr) bool {
	if l.everywhere(level) {
		return true
	}
	items := l.items()
	if len(items) == 0 || pc == 0 {
		return false
	}
	name := strings.TrimSuffix(path.Base(frameOf(pc).File), ".go")
	for _, item := range items {
		if match, _ := filepath.Match(item.FilePattern, name); match {
			return vOf(level) <= int64(item.Verbosity)
		}
	}
	return false
}

func (l *levels) items() []logsapi.VModuleItem {
	if items := l.modules.Load(); items != nil {
		return *items
	}
	return nil
}

// frameOf returns the place in the source that a record's PC stands for.
func frameOf(pc uintptr) runtime.Frame {
	frame, _ := runtime.CallersFrames([]uintptr{pc}).Next()
	return frame
}

// filter hands over the records that levels lets through, if their level is lowest or higher.
type filter struct {
	slog.Handler
	levels *levels
	lowest slog.Level
}

// Enabled reports whether a record of the level may be written; Handle knows the file, too.
func (f filter) Enabled(_ context.Context, level slog.Level) bool {
	return level >= f.lowest && f.levels.somewhere(level)
}

// Handle hands over a record that is to be written, and drops the others.
func (f filter) Handle(ctx context.Context, r slog.Record) error {
	if !f.levels.from(r.Level, r.PC) {
		return nil
	}
	return f.Handler.Handle(ctx, r)
}

// WithAttrs returns a filter before the handler with the attributes.
func (f filter) WithAttrs(attrs []slog.Attr) slog.Handler {
	f.Handler = f.Handler.WithAttrs(attrs)
	return f
}

// WithGroup returns a filter before the handler with the group.
func (f filter) WithGroup(name string) slog.Handler {
	f.Handler = f.Handler.WithGroup(name)
	return f
}
