package history

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxLine limits a line of a segment, in bytes. A timeline of 96 entries with messages of 1 KiB is
// far below it.
const maxLine = 1 << 20

// Events returns the events whose last time is not before since, the latest one last. A repeated
// event is there once, as it was last. Events ends early with the error of ctx.
func (r *Recorder) Events(ctx context.Context, since time.Time) ([]v1.Event, error) {
	if r == nil {
		return nil, nil
	}
	latest := map[string]*v1.Event{}
	err := r.each(ctx, since, func(rec record) {
		if e := rec.Event; e != nil && !e.LastTimestamp.Time.Before(since) {
			latest[e.Namespace+"/"+e.Name] = e
		}
	})
	out := make([]v1.Event, 0, len(latest))
	for _, e := range latest {
		out = append(out, *e)
	}
	slices.SortFunc(out, func(a, b v1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return out, err
}

// Past is one life of a pod, and when it was last heard of.
type Past struct {
	Life

	Until time.Time
}

// Previous returns the last life of a pod before the present one: in an earlier run of the agent,
// or under another UID. current is the UID of the pod that is there now; empty for none. The names
// are those that the pod may have. Previous returns nil if there is none. It ends early with the
// error of ctx.
func (r *Recorder) Previous(
	ctx context.Context, namespace string, names []string, current types.UID,
) (*Past, error) {
	if r == nil {
		return nil, nil //nolint:nilnil // there is no history
	}
	type key struct {
		uid types.UID
		run int64
	}
	lives := map[key]*Past{}
	var last *Past
	err := r.each(ctx, time.Time{}, func(rec record) {
		l := rec.Life
		if l == nil || l.Namespace != namespace || !slices.Contains(names, l.Name) ||
			l.UID == current && l.Run.Equal(r.run) && !l.Gone {
			return
		}
		k := key{l.UID, l.Run.UnixNano()}
		past := lives[k]
		if past == nil {
			past = &Past{Life: *l}
			lives[k] = past
		} else {
			past.join(l)
		}
		past.Until, last = rec.At, past
	})
	return last, err
}

// join adds a later part to a life.
func (p *Past) join(l *Life) {
	if l.Whole {
		p.Life = *l
		return
	}
	p.Status, p.Entries = l.Status, append(p.Entries, l.Entries...)
}

// each calls do with the records of the segments that were written since a time, and of those that
// are not written yet, in order. It skips lines that are torn or too long.
func (r *Recorder) each(ctx context.Context, since time.Time, do func(record)) error {
	found, err := r.open(ctx, since)
	defer found.close()
	if err != nil {
		return err
	}
	for _, p := range found.parts {
		if err := p.each(ctx, do); err != nil {
			return err
		}
	}
	for _, rec := range found.queue {
		do(rec)
	}
	return nil
}

// snapshot is the history at one moment. Its parts are read while the writer goes on.
type snapshot struct {
	parts []part
	queue []record
}

// part is an open segment, and the size that it had.
type part struct {
	file *os.File
	size int64
}

// open returns the history since a time as it is now. The caller must close it, also after an
// error.
func (r *Recorder) open(ctx context.Context, since time.Time) (s snapshot, err error) {
	if err := r.disk.lock(ctx); err != nil {
		return s, fmt.Errorf("waiting for the history of pods to be written: %w", err)
	}
	defer r.disk.unlock()
	list, err := r.segments.list()
	if err != nil {
		return s, err
	}
	for i, seg := range list {
		if i+1 < len(list) && list[i+1].began.Before(since) {
			continue // it was not written any more then
		}
		f, err := os.Open(seg.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("reading the history of pods: %w", err)
		}
		s.parts = append(s.parts, part{f, seg.size})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.queue = slices.Clone(r.queue)
	return s, nil
}

func (s snapshot) close() {
	for _, p := range s.parts {
		_ = p.file.Close()
	}
}

// each calls do with the records of a segment.
func (p part) each(ctx context.Context, do func(record)) error {
	lines := bufio.NewReader(io.LimitReader(p.file, p.size)) // what is behind that is in the queue
	for {
		line, err := nextLine(lines)
		if err == nil {
			err = ctx.Err()
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the history of pods in %s: %w", p.file.Name(), err)
		}
		var rec record
		if json.Unmarshal(line, &rec) == nil {
			do(rec)
		}
	}
}

// nextLine reads one line, and returns nil for a line over [maxLine], such as the zeros that a
// power loss leaves in a file.
func nextLine(lines *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, more, err := lines.ReadLine()
		if err != nil {
			return nil, err
		}
		if long = long || len(line)+len(part) > maxLine; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !more {
			return line, nil
		}
	}
}
