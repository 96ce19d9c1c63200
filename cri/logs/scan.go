package logs

import (
	"bytes"
	"errors"
	"io"
)

// pieceSize is how many bytes of a line are held in memory. The lines that runtimes write are
// shorter, unless somebody removed the runtime's limit.
const pieceSize = 64 << 10

// piece is a line, or one piece of a line that is longer than pieceSize.
type piece []byte

// ends reports whether the line ends with this piece.
func (p piece) ends() bool { return len(p) > 0 && p[len(p)-1] == '\n' }

// scanner cuts a file into lines. It remembers its place, so that it can go on when the file has
// grown.
type scanner struct {
	file io.ReaderAt
	buf  []byte // buf[from:to] was read and not returned yet
	from int
	to   int
	at   int64 // the file's offset of buf[to]
}

func newScanner(file io.ReaderAt) scanner {
	return scanner{file: file, buf: make([]byte, pieceSize)}
}

// reset goes on at the beginning of another file.
func (s *scanner) reset(file io.ReaderAt) {
	s.file = file
	s.seek(0)
}

// seek goes on at an offset.
func (s *scanner) seek(offset int64) {
	s.from, s.to, s.at = 0, 0, offset
}

// next returns the next line with its end, or a piece of the line if it is too long. The error is
// io.EOF if the rest of the file has no end of a line. The piece is valid until the next call.
func (s *scanner) next() (piece, error) {
	searched := s.from
	for {
		if i := bytes.IndexByte(s.buf[searched:s.to], '\n'); i >= 0 {
			p := s.buf[s.from : searched+i+1]
			s.from = searched + i + 1
			return p, nil
		}
		if s.from == 0 && s.to == len(s.buf) {
			s.from = s.to
			return s.buf, nil
		}
		if s.from > 0 {
			copy(s.buf, s.buf[s.from:s.to])
			s.from, s.to = 0, s.to-s.from
		}
		searched = s.to
		n, err := s.file.ReadAt(s.buf[s.to:], s.at)
		s.to += n
		s.at += int64(n)
		if n == 0 {
			if err == nil {
				err = io.ErrNoProgress
			}
			return nil, err
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
}

// rest returns what follows the end of the last line.
func (s *scanner) rest() piece {
	p := s.buf[s.from:s.to]
	s.from = s.to
	return p
}
