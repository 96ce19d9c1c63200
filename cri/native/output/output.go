package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthd/berth/internal/retry"
)

// Config says where a container's output comes from and goes to.
type Config struct {
	// Dir has the pipes and the journals. Its file system must allow pipes.
	Dir string
	// LogPath is the log; empty if nobody wants it.
	LogPath string
	// Terminal says that the container has only one stream.
	Terminal bool
	// Logger gets what no caller learns.
	Logger *slog.Logger
}

// Output is what a container writes. Open one with [Open], and end it with [Output.Finish] or
// [Output.Close].
type Output struct {
	cfg Config
	log *log
	// reading has a goroutine for each stream, until its pipe ends.
	reading sync.WaitGroup
	closing context.Context //nolint:containedctx // the life of the output's own goroutines
	cancel  context.CancelFunc
	// giving ends when those who are attached are not waited for any more, at the latest on closing.
	giving  context.Context //nolint:containedctx // as closing
	release context.CancelFunc

	mu       sync.Mutex
	pipes    []*os.File // the ends that are read
	writers  []*os.File // held until the shim has its own
	keeper   *exec.Cmd  // nil if an earlier process of berth has started it
	attached map[*Attached]bool
}

// Attached is somebody who gets the output from now on. A nil writer wants nothing.
type Attached struct{ Stdout, Stderr io.Writer }

// Open opens the log of a container. It makes the directory of the pipes if it is missing.
func Open(cfg Config) (*Output, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of its pipes: %w", err)
	}
	l, err := openLog(cfg.Dir, cfg.LogPath, cfg.Logger)
	if err != nil {
		return nil, err
	}
	o := &Output{cfg: cfg, log: l, attached: map[*Attached]bool{}}
	o.closing, o.cancel = context.WithCancel(context.Background())
	o.giving, o.release = context.WithCancel(o.closing)
	return o, nil
}

// streams returns the streams that the container has.
func (o *Output) streams() []Stream {
	if o.cfg.Terminal {
		return []Stream{Stdout}
	}
	return []Stream{Stdout, Stderr}
}

// Pipe returns the path of a stream's pipe, "" if the container has no such stream.
func (o *Output) Pipe(s Stream) string {
	if o.cfg.Terminal && s == Stderr {
		return ""
	}
	return filepath.Join(o.cfg.Dir, s.String())
}

// Begin makes the pipes of a container that is about to be made, and reads them. The output does
// not end before [Output.Made].
func (o *Output) Begin() error {
	var paths []string
	for _, s := range o.streams() {
		if err := makePipe(o.Pipe(s)); err != nil {
			return err
		}
		paths = append(paths, o.Pipe(s))
	}
	keeper, err := startKeeper(o.cfg.Dir, paths)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.keeper = keeper
	o.mu.Unlock()
	for _, path := range paths {
		// For reading, too: a pipe without a reader cannot be opened.
		w, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return fmt.Errorf("open a container's pipe: %w", err)
		}
		o.mu.Lock()
		o.writers = append(o.writers, w)
		o.mu.Unlock()
	}
	return o.Resume()
}

// Made says that the shim has the pipes open: the output ends when the shim closes them.
func (o *Output) Made() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.writers {
		_ = w.Close()
	}
	o.writers = nil
}

// Resume reads the pipes of a container that was made. A pipe that is not there has ended.
func (o *Output) Resume() error {
	for _, s := range o.streams() {
		pipe, err := openReader(o.Pipe(s))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		o.mu.Lock()
		o.pipes = append(o.pipes, pipe)
		o.mu.Unlock()
		o.reading.Go(func() { o.read(s, pipe) })
	}
	return nil
}

// read carries the output of a stream until its pipe ends or is closed.
func (o *Output) read(s Stream, pipe *os.File) {
	defer func() { _ = pipe.Close() }()
	again := retry.Backoff{First: 50 * time.Millisecond, Most: 5 * time.Second}
	failures := 0
	for {
		n, err := o.log.journals[s].fill(pipe)
		switch {
		case err != nil && o.closing.Err() != nil:
			return
		case err != nil: // there is no room for it; the container waits
			if failures++; failures == 1 {
				o.cfg.Logger.Warn("a container's output waits", "log", o.cfg.LogPath, "error", err)
			}
			if !again.Wait(o.closing, failures) {
				return
			}
			continue
		case n == 0:
			return
		}
		failures = 0
		err = o.log.add(s, false)
		if err != nil && !errors.Is(err, errLogClosed) {
			o.cfg.Logger.Warn("a container's output waits to be logged", "log", o.cfg.LogPath, "error", err)
		}
		o.give(s, n)
		if err == nil {
			o.log.free(s) // not before give, which reads the journal
		}
	}
}

// give gives the last bytes of a stream to those who are attached.
func (o *Output) give(s Stream, n int64) {
	o.mu.Lock()
	var to []*Attached
	for a := range o.attached {
		to = append(to, a)
	}
	o.mu.Unlock()
	if len(to) == 0 {
		return
	}
	j := o.log.journals[s]
	data, err := j.read(j.end-n, j.end)
	for _, a := range to {
		w := a.Stdout
		if s == Stderr {
			w = a.Stderr
		}
		if w == nil {
			continue
		}
		if err != nil || o.hand(w, data) != nil {
			o.Leave(a) // it is gone
		}
	}
}

// hand writes to somebody who is attached. A write to somebody who reads nothing ends only with the
// client's connection: at the end of the output it is left alone.
func (o *Output) hand(w io.Writer, data []byte) error {
	written := make(chan error, 1)
	go func() {
		_, err := w.Write(data)
		written <- err
	}()
	select {
	case err := <-written:
		return err
	case <-o.giving.Done():
		return context.Cause(o.giving)
	}
}

// Join adds somebody who gets the output from now on. A slow reader slows the container down, but
// not its end.
func (o *Output) Join(a *Attached) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attached[a] = true
}

// Leave ends what Join began.
func (o *Output) Leave(a *Attached) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.attached, a)
}

// Reopen makes the log anew at its path, after somebody has moved the old file away.
func (o *Output) Reopen() error { return o.log.reopen() }

// Finish waits until everything that an ended container has written is in the log, but for the
// pipes not longer than the limit, and for those who are attached half as long. Then it closes the
// log and ends the keeper.
func (o *Output) Finish(limit time.Duration) error {
	o.Made()
	release := time.AfterFunc(limit/2, o.release)
	stop := time.AfterFunc(limit, o.stop)
	o.reading.Wait()
	release.Stop()
	stop.Stop()
	var errs []error
	for _, s := range o.streams() {
		if err := o.log.add(s, true); err != nil && !errors.Is(err, errLogClosed) {
			errs = append(errs, err)
		}
	}
	o.Close()
	return errors.Join(append(errs, o.endKeeper())...)
}

// Close ends the reading. What is not in the log yet is in the journals and the pipes, and a later
// process of berth goes on with it. Closing twice is allowed.
func (o *Output) Close() {
	o.Made()
	o.stop()
	o.reading.Wait()
	o.log.close()
}

// stop ends the reading of the pipes.
func (o *Output) stop() {
	o.cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.pipes {
		_ = p.Close()
	}
	o.pipes = nil
}

func (o *Output) endKeeper() error {
	o.mu.Lock()
	own := o.keeper
	o.keeper = nil
	o.mu.Unlock()
	if own != nil {
		_ = own.Process.Kill() // it may have ended
		_ = own.Wait()
	}
	return EndKeeper(o.cfg.Dir)
}
