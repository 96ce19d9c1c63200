package logs

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// source is one file of a log: a rotated part, or the current file.
type source struct {
	file *os.File
	// stem is the stem of the part. It is empty for the file that was current when it was opened.
	stem string
	// text is the content of the file, decompressed if the file is compressed.
	text io.ReaderAt
}

func (s *source) close() { _ = s.file.Close() } // nothing was written to it

// openSource opens a file of the directory for reading.
func (d *dir) openSource(name, stem string) (*source, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	s := &source{file: f, stem: stem, text: f}
	if stem != "" && name != stem {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("decompress %s: %w", name, err), f.Close())
		}
		s.text = &unzipped{z: z}
	}
	return s, nil
}

// unzipped reads a compressed file from its beginning to its end, as the scanner does.
type unzipped struct {
	z  *gzip.Reader
	at int64
	// broken is why the rest of the file cannot be read. A damaged file ends at the damage.
	broken error
}

var errOutOfOrder = errors.New("a compressed log can only be read in order")

// ReadAt reads the bytes that follow the last call's bytes. It cannot read at another offset.
func (u *unzipped) ReadAt(p []byte, off int64) (n int, err error) {
	if off != u.at {
		return 0, errOutOfOrder
	}
	for n == 0 && err == nil {
		n, err = u.z.Read(p)
	}
	u.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		u.broken, err = err, io.EOF
	}
	return n, err
}

// parts lists the rotated parts of a log, oldest first, without duplicates.
func (d *dir) parts(base string) ([]part, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	var out []part
	for _, name := range names {
		if p, ok := partOf(base, name); ok {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, byStem)
	return slices.CompactFunc(out, func(a, b part) bool { return a.stem == b.stem }), nil
}

// openTries is how often a log is opened again because it was rotated meanwhile. Two rotations are
// at least a millisecond apart.
const openTries = 20

// openChain opens all files of a log, oldest first. No part between the first and the last is
// missing, and no part is there twice.
func (d *dir) openChain(base string) (chain []*source, err error) {
	for range openTries {
		var settled bool
		if chain, settled, err = d.tryChain(base); err != nil || settled {
			return chain, err
		}
		closeAll(chain)
	}
	return nil, errors.New("it is rotated faster than it can be opened")
}

// tryChain opens the chain. settled reports whether there was no rotation meanwhile.
func (d *dir) tryChain(base string) (chain []*source, settled bool, err error) {
	before, err := d.parts(base)
	if err != nil {
		return nil, false, err
	}
	current, err := d.openSource(base, "")
	if errors.Is(err, fs.ErrNotExist) && len(before) == 0 {
		if after, errAfter := d.parts(base); errAfter != nil || len(after) == 0 {
			return nil, false, err
		}
		return nil, false, nil // the first rotation happened between the two looks
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	for _, p := range before {
		s, err := d.openSource(p.name, p.stem)
		switch {
		case err == nil:
			chain = append(chain, s)
		case errors.Is(err, fs.ErrNotExist): // compressed or removed meanwhile
			if current != nil {
				current.close()
			}
			return chain, false, nil
		}
		// Anything else is not a part of the log: a link, a pipe, a file that is not compressed
		// data.
	}
	if current != nil {
		chain = append(chain, current)
	}
	if len(chain) == 0 {
		return nil, false, fs.ErrNotExist
	}
	after, err := d.parts(base)
	same := slices.EqualFunc(before, after, func(a, b part) bool { return a.stem == b.stem })
	return chain, err == nil && same && d.still(base, current), nil
}

// still reports whether a log's name still leads to the file that was opened. nil stands for no
// file.
func (d *dir) still(base string, current *source) bool {
	f, err := d.open(base)
	if err != nil {
		return current == nil
	}
	defer f.Close()
	if current == nil {
		return false
	}
	a, errA := f.Stat()
	b, errB := current.file.Stat()
	return errA == nil && errB == nil && os.SameFile(a, b)
}

func closeAll(chain []*source) {
	for _, s := range chain {
		s.close()
	}
}

// sampleSize is how many bytes of a file's beginning identify the file. They contain the first
// line's time, to the nanosecond.
const sampleSize = 512

// beginning returns the first bytes of a file from which nothing was read yet.
func beginning(r io.ReaderAt) []byte {
	sample := make([]byte, sampleSize)
	have := 0
	for have < len(sample) {
		n, err := r.ReadAt(sample[have:], int64(have))
		have += n
		if err != nil || n == 0 {
			break
		}
	}
	return sample[:have]
}

// start decides where in an opened chain the reading begins. It leaves out parts that end before
// since, and what the tail does not want. skip is how many lines of the first source to skip.
// offset is where to begin in the first source; it is used instead of skip if the source is not
// compressed.
func (r *reader) start(ctx context.Context) (skip, offset int64, err error) {
	if since := r.opts.Since; !since.IsZero() {
		for len(r.chain) > 1 {
			// A part's time is the time of its last line, also after the compression. It comes from
			// the clock of the file system, which is coarser.
			if info, err := r.chain[0].file.Stat(); err != nil || !info.ModTime().Add(time.Second).Before(since) {
				break
			}
			r.drop()
		}
	}
	if r.opts.Tail == nil || *r.opts.Tail < 0 {
		return 0, 0, nil
	}
	left := *r.opts.Tail
	for i := len(r.chain) - 1; i >= 0; i-- {
		if ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
		var lines int64
		if skip, offset, lines, err = r.chain[i].tail(r.dir, left); err != nil {
			return 0, 0, err
		}
		if left -= lines; left == 0 {
			for range i {
				r.drop()
			}
			break
		}
	}
	return skip, offset, nil
}

// drop removes the chain's first source.
func (r *reader) drop() {
	r.chain[0].close()
	r.chain = r.chain[1:]
}

// tail returns where the last n complete lines begin, and how many there are.
func (s *source) tail(d *dir, n int64) (skip, offset, lines int64, err error) {
	if _, compressed := s.text.(*unzipped); !compressed {
		end, err := s.file.Seek(0, io.SeekEnd)
		if err != nil {
			return 0, 0, 0, err
		}
		offset, lines, err = tailOffset(s.file, end, n)
		return 0, offset, lines, err
	}
	// To count the lines, the file is decompressed once, with a descriptor of its own.
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return 0, 0, 0, err
	}
	z, err := gzip.NewReader(s.file)
	if err != nil {
		return 0, 0, 0, err
	}
	total, _ := countLines(z) // a damaged file is read up to the damage
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return 0, 0, 0, err
	}
	if z, err = gzip.NewReader(s.file); err != nil {
		return 0, 0, 0, err
	}
	s.text = &unzipped{z: z}
	lines = min(total, n)
	return total - lines, 0, lines, nil
}
