// Package logging makes the agent's log: berth's own text, or on request the formats of a kubelet.
//
// Purpose: [New] turns the logging part of a KubeletConfiguration into a slog handler. If the user
// set logging.format, each record has the form that a kubelet gives it (KEP-1602): klog's header
// and key="value" pairs as text, or one JSON object. Else a record is slog's text, or an entry of
// the journal.
//
// Truth owned: how much is logged, in the numbers of -v ([Log.SetVerbosity]). Level L of slog is
// V(-L): Debug is V(4), and Info, Warn and Error are V(0).
//
// Concurrency: all is safe for concurrent use. [Log.Run] is the only goroutine, and its caller
// joins it.
package logging

import (
	"context"
	"io"
	"log/slog"
	"math"
	"strconv"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// Formats of logging.format.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// libraryLimit is the highest level at which libraries may log. From 8 on, the client library logs
// the bodies of the API server's answers, and some of these are Secrets and tokens.
const libraryLimit = 7

// maxBuffer limits the buffer of the split stream, in bytes; the kubelet's limit.
const maxBuffer = 2 << 30

// Options are what [New] needs.
type Options struct {
	// Config is the logging part of a KubeletConfiguration, with its defaults.
	Config logsapi.LoggingConfiguration
	// Format is FormatText or FormatJSON for a kubelet's format, or empty for berth's own.
	Format string
	// Err is the stream of all records. Info is the stream of records that are no errors, if the
	// streams are to be split (logging.options); nil if they are never split.
	Err, Info io.Writer
	// Journal returns a handler that sends records in berth's own format to the journal, and those
	// that the journal does not take to the other handler. It is nil if Err is not the journal.
	Journal func(instead slog.Handler) slog.Handler
}

// Log is the agent's log. Make it with [New].
type Log struct {
	levels  *levels
	records slog.Handler
	buffer  *buffer // nil without one
	every   time.Duration
}

// New returns a log.
func New(o Options) *Log {
	l := &Log{levels: &levels{}, every: o.Config.FlushFrequency.Duration.Duration}
	l.SetVerbosity(uint32(o.Config.Verbosity))
	l.SetModules(o.Config.VModule)
	routing := o.Config.Options.Text.OutputRoutingOptions
	from := slog.LevelWarn
	if o.Format == FormatJSON {
		routing, from = o.Config.Options.JSON.OutputRoutingOptions, slog.LevelError
	}
	l.records = format(o, o.Err)
	if routing.SplitStream && o.Info != nil {
		info := o.Info
		if size := routing.InfoBufferSize.Value(); size > 0 {
			l.buffer = newBuffer(info, int(min(size, maxBuffer)))
			info = l.buffer
		}
		plain := o
		plain.Journal = nil
		l.records = split{info: format(plain, info), errors: l.records, from: from}
	}
	return l
}

// format returns a handler that writes every record to w.
func format(o Options, w io.Writer) slog.Handler {
	switch o.Format {
	case FormatJSON:
		return flat{write: jsonTo(w)}
	case FormatText:
		return flat{write: klogTo(w)}
	}
	text := slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.Level(math.MinInt32)})
	if o.Journal != nil {
		return o.Journal(text)
	}
	return text
}

// SetVerbosity sets how much is logged, in the numbers of -v. The package klog gets the number,
// too, for libraries that ask it before they log.
func (l *Log) SetVerbosity(v uint32) {
	l.levels.verbosity.Store(v)
	var level klog.Level
	_ = level.Set(strconv.Itoa(int(min(v, libraryLimit)))) // a small number is always taken
}

// SetModules sets the levels of source files (logging.vmodule). A pattern is that of
// filepath.Match. It is compared with a file's name without its directory and ".go", and the first
// pattern that matches counts. Items of level 0 are ignored, as the kubelet does.
func (l *Log) SetModules(items []logsapi.VModuleItem) { l.levels.setModules(items) }

// Logger returns the logger of the agent's own code.
func (l *Log) Logger() *slog.Logger {
	return slog.New(filter{Handler: l.records, levels: l.levels, lowest: math.MinInt32})
}

// Libraries returns the logger of libraries, which log at level 7 at most: from 8 on, the client
// library logs bodies, and so Secrets and tokens.
func (l *Log) Libraries() *slog.Logger {
	return slog.New(filter{Handler: l.records, levels: l.levels, lowest: -libraryLimit})
}

// Flush writes what the buffer of the split stream has.
func (l *Log) Flush() {
	if l.buffer != nil {
		l.buffer.Flush()
	}
}

// Run flushes every logging.flushFrequency, and for the last time when ctx ends. It returns at once
// if nothing is buffered.
func (l *Log) Run(ctx context.Context) {
	if l.buffer == nil {
		return
	}
	defer l.Flush()
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.Flush()
		}
	}
}
