package history

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// parts is the number of segments that the size of the history, and its age, are divided into: no
	// more than one of them is removed for another.
	parts = 8
	// maxSegments limits the files, because each run of the agent begins one. A reader opens all of
	// them.
	maxSegments = 128
	// prefix and suffix are around the number in a segment's name, which is the time in nanoseconds
	// at which the segment was begun.
	prefix, suffix = "history-", ".jsonl"
)

// segments are the files of the history. It is not safe for concurrent use.
type segments struct {
	dir      string
	maxBytes int64
	maxAge   time.Duration
	// append is [os.File.Write]. In tests it fails.
	append func(f *os.File, text []byte) (int, error)

	// file is the segment that is written; nil if the next write begins one. began is when the last
	// segment was begun, and written is its size.
	file    *os.File
	began   time.Time
	written int64
}

// segment is a file of the history.
type segment struct {
	path string
	size int64
	// began is when it was begun, from its name.
	began time.Time
}

// write appends whole lines, and removes what is too old or too much. Lines that are too much for
// one segment go into several ones. After an error the lines that are left are not written.
func (s *segments) write(text []byte, now time.Time) error {
	for len(text) > 0 {
		fitting := s.fitting(text)
		if err := s.writeTo(fitting, now); err != nil {
			return err
		}
		text = text[len(fitting):]
	}
	return nil
}

// fitting returns the first lines of a text, as many as one segment may have, but at least one.
func (s *segments) fitting(text []byte) []byte {
	most := s.maxBytes / parts
	if int64(len(text)) <= most {
		return text
	}
	end := bytes.LastIndexByte(text[:most], '\n')
	if end < 0 {
		end = bytes.IndexByte(text, '\n')
	}
	return text[:end+1]
}

// writeTo appends lines to the segment that is written, or to a new one if they do not fit.
func (s *segments) writeTo(text []byte, now time.Time) error {
	if s.file != nil && (s.written+int64(len(text)) > s.maxBytes/parts || now.Sub(s.began) > s.maxAge/parts) {
		s.close()
	}
	if err := s.prune(now, int64(len(text))); err != nil {
		return err
	}
	if s.file == nil {
		if err := s.begin(now); err != nil {
			return err
		}
	}
	if _, err := s.append(s.file, text); err != nil {
		s.undo()
		return fmt.Errorf("writing the history of pods: %w", err)
	}
	s.written += int64(len(text))
	return nil
}

// undo removes the part of a text that a failed write left. The next write continues the segment,
// so that a full disk does not get another file at each write.
func (s *segments) undo() {
	if err := s.file.Truncate(s.written); err != nil || s.written == 0 {
		s.close() // a reader skips a torn last line
	}
}

// begin begins a segment. Its name is later than that of the last one, also if both are begun at
// the same time.
func (s *segments) begin(now time.Time) error {
	if !now.After(s.began) {
		now = s.began.Add(1)
	}
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil {
		path := filepath.Join(s.dir, prefix+strconv.FormatInt(now.UnixNano(), 10)+suffix)
		s.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	}
	if err != nil {
		s.file = nil
		return fmt.Errorf("beginning a file for the history of pods: %w", err)
	}
	s.began, s.written = now, 0
	return nil
}

// close ends the segment that is written. A segment without a line is removed.
func (s *segments) close() {
	if s.file == nil {
		return
	}
	_ = s.file.Sync() // a crash of the machine loses what is not there yet
	_ = s.file.Close()
	if s.written == 0 {
		_ = os.Remove(s.file.Name()) // what stays is removed as an old one
	}
	s.file = nil
}

// list returns the segments, the oldest first.
func (s *segments) list() ([]segment, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the history of pods: %w", err)
	}
	var out []segment
	for _, e := range entries {
		number, ok := strings.CutPrefix(strings.TrimSuffix(e.Name(), suffix), prefix)
		began, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // it is gone
		}
		out = append(out, segment{filepath.Join(s.dir, e.Name()), info.Size(), time.Unix(0, began)})
	}
	slices.SortFunc(out, func(a, b segment) int { return a.began.Compare(b.began) })
	return out, nil
}

// prune removes the segments that are too old, and the oldest ones until there is room for more
// bytes and for one more segment if none is written. The segment that is written stays.
func (s *segments) prune(now time.Time, more int64) error {
	list, err := s.list()
	if err != nil {
		return err
	}
	total, count := more, len(list)
	if s.file == nil {
		count++
	}
	for _, seg := range list {
		total += seg.size
	}
	oldest := now.Add(-s.maxAge - s.maxAge/parts) // a segment is written for a part of the age
	for _, seg := range list {
		fits := total <= s.maxBytes && count <= maxSegments && !seg.began.Before(oldest)
		if fits || s.file != nil && seg.path == s.file.Name() {
			continue
		}
		if err := os.Remove(seg.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing old history of pods: %w", err)
		}
		total -= seg.size
		count--
	}
	return nil
}
