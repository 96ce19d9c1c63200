package nri

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	nrilog "github.com/containerd/nri/pkg/log"
)

// logTo is where the library's log goes. The library has one log for the whole process, and
// goroutines of plugins that have ended may still write to it.
var logTo atomic.Pointer[slog.Logger]

// takeLog takes the library's log over.
var takeLog = sync.OnceFunc(func() { nrilog.Set(logger{}) })

// logger writes the library's log. What the library tells of each call is at the level debug.
type logger struct{}

var _ nrilog.Logger = logger{}

// Debugf implements [nrilog.Logger].
func (logger) Debugf(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelDebug, format, args...)
}

// Infof implements [nrilog.Logger].
func (logger) Infof(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelDebug, format, args...)
}

// Warnf implements [nrilog.Logger].
func (logger) Warnf(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelWarn, format, args...)
}

// Errorf implements [nrilog.Logger].
func (logger) Errorf(ctx context.Context, format string, args ...any) {
	write(ctx, slog.LevelError, format, args...)
}

func write(ctx context.Context, level slog.Level, format string, args ...any) {
	logTo.Load().Log(ctx, level, fmt.Sprintf("NRI: "+format, args...))
}
