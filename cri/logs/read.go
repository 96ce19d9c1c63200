package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
)

// File names a log file.
type File struct {
	// Root is a directory that is trusted, such as /var/log/pods; links in its own path are followed.
	Root string
	// Path is the file's path beneath Root; nothing in it may be a link.
	Path string
}

// Output is where the streams go. Both may be the same; a nil stream is left out and its bytes are not counted.
type Output struct {
	Stdout, Stderr io.Writer
}

// Options say what to read. The zero value reads the whole file once.
type Options struct {
	// Follow goes on until the container has ended and everything is read, across rotations.
	Follow bool
	// Tail is how many lines from the end are read, parts of lines counted as lines; nil or negative for all. A last line that is not complete
	// yet comes on top of them, but only if Follow.
	Tail *int64
	// Since leaves out what was printed before; zero leaves out nothing.
	Since time.Time
	// LimitBytes is how many bytes are written at most; nil for any number.
	LimitBytes *int64
	// Timestamps writes the time before each line.
	Timestamps bool
	// Stream is v1.LogStreamStdout or v1.LogStreamStderr to leave the other out; empty or v1.LogStreamAll for both.
	Stream string
}

// OptionsFrom translates the API's options; now is what sinceSeconds counts from. Container and Previous choose the file and are the caller's.
func OptionsFrom(o *v1.PodLogOptions, now time.Time) Options {
	options := Options{Follow: o.Follow, Tail: o.TailLines, LimitBytes: o.LimitBytes, Timestamps: o.Timestamps}
	switch {
	case o.SinceSeconds != nil:
		options.Since = now.Add(-time.Duration(*o.SinceSeconds) * time.Second)
	case o.SinceTime != nil:
		options.Since = o.SinceTime.Time
	}
	if o.Stream != nil {
		options.Stream = *o.Stream
	}
	return options
}

// Deps are what following needs; reading once needs none.
type Deps struct {
	// Running says whether the container runs, or may still be started. An error of class Unavailable counts as running, any other
	// ends the reading. Where it is nil, only Stopped ends it.
	Running func(context.Context) (bool, error)
	// Stopped, if not nil, is closed when the container has ended, and spares asking Running often.
	Stopped <-chan struct{}
	// Interval is how often Running is asked; 0 means every second, or every 30 seconds where there is Stopped.
	Interval time.Duration
	// Log is told what was passed over; nil for nobody.
	Log *slog.Logger
}

// errLimit ends a reading whose LimitBytes are written.
var errLimit = errors.New("limit reached")

// Read writes a container's log to out. It returns nil at the end of the file (without Follow), at the container's end, and when LimitBytes are
// written; else the context's error, fs.ErrNotExist where there is no such file, [ErrNotRegular] or [ErrEscape] where it must not be read, or
// the error of reading or writing, each wrapped.
func Read(ctx context.Context, out Output, file File, opts Options, deps Deps) error {
	r, err := newReader(out, file, opts, deps)
	if err != nil {
		return fmt.Errorf("open log %s: %w", file.Path, err)
	}
	defer r.close()
	if err := r.run(ctx); err != nil && !errors.Is(err, errLimit) {
		return fmt.Errorf("read log %s: %w", file.Path, err)
	}
	if r.lines.corrupt > 0 {
		r.log.Warn("Passed over lines that are no log lines", "path", file.Path, "lines", r.lines.corrupt)
	}
	return nil
}

// reader reads one log, whose file may change under it.
type reader struct {
	opts Options
	deps Deps
	log  *slog.Logger

	dir   *dir
	name  string // in dir
	file  *os.File
	scan  scanner
	lines printer
	left  int64 // lines to read still; negative for any number
}

func newReader(out Output, file File, opts Options, deps Deps) (*reader, error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	d, name, err := openDir(file)
	if err != nil {
		return nil, err
	}
	f, err := d.open(name)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	r := &reader{opts: opts, deps: deps, log: deps.Log, dir: d, name: name, file: f, lines: newPrinter(out, opts), left: -1}
	r.scan = newScanner(f)
	return r, nil
}

func (r *reader) close() {
	// Nothing was written to either.
	_ = r.file.Close()
	_ = r.dir.close()
}

func (r *reader) run(ctx context.Context) error {
	if limit := r.opts.LimitBytes; limit != nil && *limit <= 0 {
		return nil
	}
	if tail := r.opts.Tail; tail != nil && *tail >= 0 {
		start, err := tailStart(r.file, *tail)
		if err != nil {
			return err
		}
		r.scan.seek(start)
		if !r.opts.Follow {
			r.left = *tail
		}
	}
	if r.opts.Follow {
		return r.follow(ctx)
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.finish()
}

// drain writes everything up to the last complete line.
func (r *reader) drain(ctx context.Context) error {
	for r.left != 0 {
		piece, err := r.scan.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ended, err := r.lines.print(piece)
		if err != nil {
			return err
		}
		if ended && r.left > 0 {
			r.left--
		}
	}
	return nil
}

// finish writes what is left after the last complete line of a file that will not grow any more.
func (r *reader) finish() error {
	rest := r.scan.rest()
	if len(rest) == 0 || r.left == 0 {
		return nil
	}
	_, err := r.lines.print(rest)
	return err
}
