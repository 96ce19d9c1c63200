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
	if err = r.drain(ctx); err == nil {
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

// successor opens the file that was begun after the current one; nil if there is none. It is the oldest part that is newer than the current one, or
// else the file that is written now.
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
	// Listed only now: what was rotated between the current file and the one just opened is in it, unless it is gone for good.
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

// own returns the index of the part that the current file has become; -1 where it is gone already, and with it all that is older.
func (r *reader) own(current *source, parts []part) int {
	var sample []byte
	for i, p := range parts {
		if p.stem == current.stem {
			return i
		}
		s, err := r.dir.openSource(p.name, p.stem)
		if err != nil {
			continue // removed meanwhile, or no log
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
