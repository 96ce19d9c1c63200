package logs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/containerd/errdefs"
)

// The default intervals between calls of Running: without, and with a channel that reports the end.
const (
	askOften  = time.Second
	askSeldom = 30 * time.Second
)

// follow reads until the container has ended and everything is read. It sees a rotation in this
// order:
//
//	N.log renamed      the same file grows under its other name
//	new N.log made     the runtime writes to the old file, or to the new one from now on
//	new N.log written  the runtime writes the last lines to the old file, if there are any left
//	old file closed    the old file is complete: read the rest of it, then go on with the new one
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

// running asks whether the container runs. A runtime that does not answer does not end its
// containers.
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

// rotate goes on with the file that follows the current one, if there is one and the current file
// is complete. It also detects that the current file was truncated.
func (r *reader) rotate(ctx context.Context, running bool) (switched bool, err error) {
	current := r.chain[0]
	now, err := current.file.Stat()
	if err != nil {
		return false, err
	}
	if now.Size() < r.scan.at && current.text == io.ReaderAt(current.file) {
		r.lines.brokenOff()
		r.scan.seek(0)
		return true, nil
	}
	next, err := r.successor(current)
	if err != nil || next == nil {
		return false, err
	}
	info, err := next.file.Stat()
	if err != nil || info.Size() == 0 && running && next.stem == "" {
		next.close()
		return false, err
	}
	if err = settle(ctx, current.file); err == nil {
		err = r.drain(ctx)
	}
	if err == nil {
		err = r.finish()
	}
	if err != nil {
		next.close()
		return false, err
	}
	r.chain = append(r.chain, next)
	r.next()
	return true, nil
}

// successor opens the file that was begun after the current one, nil if there is none. That file is
// the oldest part that is newer than the current file, or else the log's own file.
func (r *reader) successor(current *source) (*source, error) {
	next, err := r.dir.openSource(r.name, "")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // between the renaming and the reopening, or removed with its pod
	}
	if err != nil {
		return nil, err
	}
	same, err := sameFile(current.file, next.file)
	if err != nil || same {
		next.close()
		return nil, err
	}
	// The parts are listed only now. So the list has everything that was rotated between the
	// current file and the file just opened, except what was removed.
	parts, err := r.dir.parts(r.name)
	if err != nil {
		next.close()
		return nil, err
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { return p.stem <= r.after })
	if own := r.own(current, parts); own >= 0 {
		r.after, parts = parts[own].stem, parts[own+1:]
	}
	for _, p := range parts {
		between, err := r.dir.openSource(p.name, p.stem)
		if errors.Is(err, fs.ErrNotExist) && !p.compressed() {
			between, err = r.dir.openSource(p.stem+compressedSuffix, p.stem)
		}
		if err == nil {
			next.close()
			r.after = p.stem
			return between, nil
		}
	}
	return next, nil
}

// own returns the index of the part that the current file has become. It returns -1 if that part
// was removed; then all older parts were removed, too.
func (r *reader) own(current *source, parts []part) int {
	var sample []byte
	for i, p := range parts {
		if p.stem == current.stem {
			return i
		}
		s, err := r.dir.openSource(p.name, p.stem)
		if err != nil {
			continue // removed meanwhile, or not a log
		}
		same, err := sameFile(current.file, s.file)
		if err == nil && !same && p.compressed() && current.stem == "" {
			if sample == nil {
				sample = beginning(current.file)
			}
			same = len(sample) > 0 && bytes.Equal(sample, beginning(s.text))
		}
		s.close()
		if err == nil && same {
			return i
		}
	}
	return -1
}

func sameFile(a, b *os.File) (bool, error) {
	x, err := a.Stat()
	if err != nil {
		return false, err
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y), err
}
