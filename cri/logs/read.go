package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
)

// File names a log file.
type File struct {
	// Root is a trusted directory, such as /var/log/pods. Links in Root's own path are followed.
	Root string
	// Path is the file's path beneath Root. No part of Path may be a link.
	Path string
}

// Output is where the streams are written. Both may be the same. A stream that is nil is left out,
// and its bytes are not counted.
type Output struct {
	Stdout, Stderr io.Writer
}

// Options are what to read. The zero value reads the whole log once, its rotated parts first.
type Options struct {
	// Follow continues across rotations until the container has ended and everything is read.
	Follow bool
	// Tail is how many lines from the end are read. Lines of rotated parts and parts of lines
	// count, too. nil or a negative number reads all lines. With Follow, an incomplete last line is
	// read in addition.
	Tail *int64
	// Since leaves out what was printed before this time. The zero time leaves out nothing.
	Since time.Time
	// LimitBytes is the largest number of bytes to write; nil sets no limit.
	LimitBytes *int64
	// Timestamps writes the time before each line.
	Timestamps bool
	// Stream selects one stream: v1.LogStreamStdout or v1.LogStreamStderr. Empty or v1.LogStreamAll
	// selects both.
	Stream string
}

// OptionsFrom translates the API's options. sinceSeconds counts back from now. Container and
// Previous choose the file, so they are left to the caller.
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

// Deps are what following needs. Reading once needs none of them.
type Deps struct {
	// Running reports whether the container runs or may still be started. An error of class
	// Unavailable counts as running; any other error ends the reading. If Running is nil, only
	// Stopped ends the reading.
	Running func(context.Context) (bool, error)
	// Stopped, if not nil, is closed when the container has ended. With Stopped, Running is called
	// less often.
	Stopped <-chan struct{}
	// Interval is the time between calls of Running. 0 means one second, or 30 seconds with
	// Stopped.
	Interval time.Duration
	// Log gets a record of what was skipped. It may be nil.
	Log *slog.Logger
}

// errLimit ends a reading that has written LimitBytes.
var errLimit = errors.New("limit reached")

// Read writes a container's log to out. It returns nil at the end of the file (without Follow), at
// the container's end, and when LimitBytes are written. Otherwise it returns a wrapped error: the
// context's error, fs.ErrNotExist if there is no such file, [ErrNotRegular] or [ErrEscape] if the
// file must not be read, or the error of reading or writing.
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

// reader reads one log. The log's files may change meanwhile.
type reader struct {
	opts Options
	deps Deps
	log  *slog.Logger

	dir  *dir
	name string // in dir
	// chain are the files to read, oldest first. scan reads the first of them.
	chain []*source
	// after is the stem of the newest part at the time when the last file of chain was opened. That
	// file will have a greater stem.
	after string
	scan  scanner
	lines printer
	left  int64 // lines still to read; negative for any number
}

func newReader(out Output, file File, opts Options, deps Deps) (*reader, error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	d, name, err := openDir(file)
	if err != nil {
		return nil, err
	}
	chain, err := d.openChain(name)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	r := &reader{
		opts: opts, deps: deps, log: deps.Log, dir: d, name: name, chain: chain, lines: newPrinter(out, opts), left: -1,
	}
	if n := len(chain); n > 1 {
		r.after = chain[n-2].stem
	}
	r.scan = newScanner(chain[0].text)
	return r, nil
}

func (r *reader) close() {
	closeAll(r.chain)
	_ = r.dir.close()
}

// run reads the chain, and then follows its last file if Follow is set.
func (r *reader) run(ctx context.Context) error {
	if limit := r.opts.LimitBytes; limit != nil && *limit <= 0 {
		return nil
	}
	skip, offset, err := r.start(ctx)
	if err != nil {
		return err
	}
	if tail := r.opts.Tail; tail != nil && *tail >= 0 && !r.opts.Follow {
		r.left = *tail
	}
	r.scan.reset(r.chain[0].text)
	r.scan.seek(offset)
	if err := r.skip(skip); err != nil {
		return err
	}
	for len(r.chain) > 1 {
		if r.opts.Follow {
			if err := settle(ctx, r.chain[0].file); err != nil {
				return err
			}
		}
		if err := r.drain(ctx); err != nil {
			return err
		}
		if err := r.finish(); err != nil {
			return err
		}
		r.next()
	}
	if r.opts.Follow {
		return r.follow(ctx)
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.finish()
}

// next goes on with the next file of the chain.
func (r *reader) next() {
	if u, ok := r.chain[0].text.(*unzipped); ok && u.broken != nil {
		r.log.Warn("Passed over the rest of a damaged log", "file", r.chain[0].file.Name(), "err", u.broken)
	}
	r.drop()
	r.lines.brokenOff()
	r.scan.reset(r.chain[0].text)
}

// skip skips complete lines.
func (r *reader) skip(lines int64) error {
	for lines > 0 {
		p, err := r.scan.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if p.ends() {
			lines--
		}
	}
	return nil
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

// finish writes what follows the last complete line of a file that does not grow any more.
func (r *reader) finish() error {
	rest := r.scan.rest()
	if len(rest) == 0 || r.left == 0 {
		return nil
	}
	_, err := r.lines.print(rest)
	return err
}
