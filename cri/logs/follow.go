package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// How often Running is asked by default: without and with a channel that tells the end.
const (
	askOften  = time.Second
	askSeldom = 30 * time.Second
)

// follow reads until the container has ended and everything is read. What it sees of a rotation, in order:
//
//	N.log renamed      the same file goes on growing under its other name
//	new N.log made     the runtime still writes to the old one, or writes to the new one from now on
//	new N.log written  the old one is complete: read its rest, then go on with the new one
func (r *reader) follow(ctx context.Context) error {
	w := newWatch(r.dir, r.name, r.log)
	defer w.close()
	ask := time.NewTicker(r.interval())
	defer ask.Stop()
	running, err := r.running(ctx)
	if err != nil {
		return err
	}
	for {
		if err := r.drain(ctx); err != nil {
			return err
		}
		if switched, err := r.rotate(ctx, running); err != nil {
			return err
		} else if switched {
			continue
		}
		if !running {
			return r.finish()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.changed:
		case <-r.deps.Stopped:
			running = false
		case <-ask.C:
			if running, err = r.running(ctx); err != nil {
				return err
			}
		}
	}
}

func (r *reader) interval() time.Duration {
	switch {
	case r.deps.Interval > 0:
		return r.deps.Interval
	case r.deps.Stopped != nil:
		return askSeldom
	}
	return askOften
}

// running asks whether the container runs. A runtime that does not answer does not end its containers.
func (r *reader) running(ctx context.Context) (bool, error) {
	select {
	case <-r.deps.Stopped:
		return false, nil
	default:
	}
	if r.deps.Running == nil {
		return true, nil
	}
	running, err := r.deps.Running(ctx)
	if errdefs.IsUnavailable(err) {
		return true, nil
	}
	return running, err
}

// rotate goes on with the file that follows the current one, if there is one and the current one is complete. It also notices that the current
// one was truncated.
func (r *reader) rotate(ctx context.Context, running bool) (switched bool, err error) {
	now, err := r.file.Stat()
	if err != nil {
		return false, err
	}
	if now.Size() < r.scan.at {
		r.lines.brokenOff()
		r.scan.seek(0)
		return true, nil
	}
	next, err := r.successor(now)
	if err != nil || next == nil {
		return false, err
	}
	info, err := next.Stat()
	if err != nil || info.Size() == 0 && running {
		return false, errors.Join(err, next.Close())
	}
	if err = r.drain(ctx); err == nil {
		err = r.finish()
	}
	if err != nil {
		return false, errors.Join(err, next.Close())
	}
	_ = r.file.Close() // nothing was written to it
	r.file = next
	r.lines.brokenOff()
	r.scan.reset(next)
	return true, nil
}

// successor opens the file that was begun after the current one; nil if there is none. It is the oldest rotated file that is newer than the
// current one, or else the one that is written now. Rotated files have the time in their names.
func (r *reader) successor(current fs.FileInfo) (*os.File, error) {
	f, err := r.dir.open(r.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // between the renaming and the reopening, or removed with its pod
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil || os.SameFile(info, current) {
		return nil, errors.Join(err, f.Close())
	}
	between, err := r.between(current)
	if err != nil || between == nil {
		return f, err
	}
	return between, f.Close()
}

// between opens the oldest rotated file that is newer than the current one; nil if there is none, or if it was compressed already.
func (r *reader) between(current fs.FileInfo) (*os.File, error) {
	names, err := r.dir.names()
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	found := false
	for _, name := range names {
		if !strings.HasPrefix(name, r.name+".") || strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".tmp") {
			continue
		}
		f, err := r.dir.open(name)
		if err != nil {
			continue // removed meanwhile, or no log
		}
		info, err := f.Stat()
		if err == nil && found {
			return f, nil
		}
		found = found || err == nil && os.SameFile(info, current)
		_ = f.Close()
	}
	return nil, nil
}
