package client

import (
	"bytes"
	"hash/maphash"
	"io"
	"time"
)

const (
	// maxWhole is how many bytes of a line are collected before the line is written in parts.
	maxWhole = 1 << 20
	// hashed is how many bytes of a line distinguish it from other lines of the same nanosecond.
	hashed = 64 << 10
	// overlap is how much of a log is read again after an interruption. The lines of two streams
	// may not be in the order of their times, because a runtime takes some time between reading a
	// line and writing it.
	overlap = time.Second
	// putBack is how much earlier than the line before a line must be to show that the clock was
	// put back. It is longer than any runtime takes to write a line.
	putBack = 10 * time.Second
)

// lineKey identifies a line by the time before it and a hash of its content.
type lineKey struct {
	stamp string
	sum   uint64
}

// datedLine is a line that was written.
type datedLine struct {
	at  time.Time
	key lineKey
}

// resumer writes the lines of a log that comes in several streams, each line once. All streams have
// the times before the lines. Each stream but the first begins at the time that since returns. It
// is not for concurrent use.
type resumer struct {
	w      io.Writer
	stamps bool  // write the times, too
	left   int64 // bytes still to be written; negative means no limit
	seed   maphash.Seed

	// the start of a line whose end has not come, as long as no part of it was written
	pending []byte
	inside  bool // in a line of which a part was written or skipped
	skip    bool // the current line is not to be written
	drop    int  // bytes of the current line's content that are not to be written again
	gone    int  // bytes of the current line's content that were written
	fresh   bool // no line of this stream has come yet

	newest time.Time // the newest time of all lines since the clock was last put back
	// the lines of the last overlap before newest, in the order in which they came
	recent []datedLine
	again  map[lineKey]int // the lines of earlier streams that come again; nil in the first stream
	cut    string          // the time of the line at which the last stream broke off
	cutAt  int             // how much of that line's content was written
}

// newResumer returns a resumer that writes to w, at most limit bytes if limit is not nil.
func newResumer(w io.Writer, stamps bool, limit *int64) *resumer {
	r := &resumer{w: w, stamps: stamps, left: -1, seed: maphash.MakeSeed()}
	if limit != nil {
		r.left = *limit
	}
	return r
}

// copy writes the lines of one stream. done says that there is nothing to resume: the stream ended,
// or nothing more can or may be written.
func (r *resumer) copy(stream io.Reader) (done bool, err error) {
	r.fresh = true
	buf := make([]byte, 64<<10)
	for {
		n, readErr := stream.Read(buf)
		for text := buf[:n]; len(text) > 0; {
			piece := text
			end := bytes.IndexByte(text, '\n')
			if end >= 0 {
				piece = text[:end+1]
			}
			text = text[len(piece):]
			if err := r.add(piece, end >= 0); err != nil || r.left == 0 {
				return true, err
			}
		}
		switch {
		case readErr == io.EOF:
			return true, r.finish()
		case readErr != nil:
			return false, readErr
		}
	}
}

// add adds a part of a line; ends says that it is the last part.
func (r *resumer) add(piece []byte, ends bool) error {
	if r.inside {
		r.inside = !ends
		return r.put(piece)
	}
	r.pending = append(r.pending, piece...)
	if !ends && len(r.pending) < maxWhole {
		return nil
	}
	return r.begin(!ends)
}

// finish writes a last line without a newline.
func (r *resumer) finish() error {
	if len(r.pending) == 0 {
		return nil
	}
	return r.begin(false)
}

// begin decides what happens to the pending line and writes what there is of it; more says that the
// line has more parts.
func (r *resumer) begin(more bool) error {
	line, fresh := r.pending, r.fresh
	r.pending, r.inside, r.fresh = nil, more, false
	r.skip, r.drop, r.gone = false, 0, 0
	stamp, content := splitStamp(line)
	if stamp == "" {
		// the rest of a line that began before this stream, and was written already
		r.skip = fresh && r.again != nil
		return r.put(content)
	}
	key := lineKey{stamp: stamp, sum: maphash.Bytes(r.seed, content[:min(len(content), hashed)])}
	switch {
	case r.again[key] > 0:
		r.again[key]--
		r.skip = true
		return nil
	case stamp == r.cut:
		r.drop, r.gone, r.cut = r.cutAt, r.cutAt, ""
	case r.stamps:
		if err := r.write(line[:len(line)-len(content)]); err != nil {
			return err
		}
	}
	r.note(key)
	return r.put(content)
}

// splitStamp splits a line into the time before it and its content. The time is empty if there is
// none.
func splitStamp(line []byte) (stamp string, content []byte) {
	before, after, ok := bytes.Cut(line, []byte(" "))
	if _, err := time.Parse(time.RFC3339Nano, string(before)); !ok || err != nil {
		return "", line
	}
	return string(before), after
}

// note remembers a line, and forgets lines that no stream will have again.
func (r *resumer) note(key lineKey) {
	at, _ := time.Parse(time.RFC3339Nano, key.stamp) // splitStamp has parsed it
	switch {
	case at.Before(r.newest.Add(-putBack)):
		// The clock was put back. A stream that begins at an earlier time would leave out what
		// follows. A stream that begins now may repeat earlier lines.
		r.newest, r.recent = at, nil
	case at.After(r.newest):
		r.newest = at
	}
	r.recent = append(r.recent, datedLine{at, key})
	old := 0
	for old < len(r.recent) && r.recent[old].at.Before(r.newest.Add(-overlap)) {
		old++
	}
	r.recent = r.recent[old:]
}

// put writes a part of the current line's content, without the bytes that are to be left out.
func (r *resumer) put(content []byte) error {
	if r.skip {
		return nil
	}
	out := min(r.drop, len(content))
	r.drop -= out
	r.gone += len(content) - out
	return r.write(content[out:])
}

// write writes up to the limit.
func (r *resumer) write(text []byte) error {
	if r.left >= 0 {
		text = text[:min(int64(len(text)), r.left)]
		r.left -= int64(len(text))
	}
	if len(text) == 0 {
		return nil
	}
	_, err := r.w.Write(text)
	return err
}

// since ends a stream that broke off and returns the time at which the next one has to begin. It is
// zero if no line has come yet.
func (r *resumer) since() time.Time {
	var from time.Time
	if !r.newest.IsZero() {
		from = r.newest.Add(-overlap)
	}
	if stamp, _ := splitStamp(r.pending); stamp != "" && !from.IsZero() {
		if at, _ := time.Parse(time.RFC3339Nano, stamp); at.Before(from) {
			from = at // this line comes again as a whole
		}
	}
	r.again = map[lineKey]int{}
	for _, line := range r.recent {
		r.again[line.key]++
	}
	if r.inside && !r.skip && len(r.recent) > 0 {
		last := r.recent[len(r.recent)-1]
		r.again[last.key]--
		r.recent = r.recent[:len(r.recent)-1] // the line is noted again when it comes again
		r.cut, r.cutAt = last.key.stamp, r.gone
	}
	r.pending, r.inside = nil, false
	return from
}
