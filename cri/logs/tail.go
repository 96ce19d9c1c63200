package logs

import (
	"bytes"
	"errors"
	"io"
)

// tailOffset reads a file in blocks from end backwards, until it has found the end of the line
// before the last n lines. It returns the offset at which the last n complete lines begin, and how
// many lines these are: fewer than n if the file has fewer.
func tailOffset(f io.ReaderAt, end, n int64) (start, lines int64, err error) {
	block := make([]byte, pieceSize)
	left := n
	for end > 0 {
		size := min(end, int64(len(block)))
		part := block[:size]
		read, err := f.ReadAt(part, end-size)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		}
		part = part[:read] // shorter only if the file was truncated meanwhile
		for {
			i := bytes.LastIndexByte(part, '\n')
			if i < 0 {
				break
			}
			if left == 0 {
				return end - size + int64(i) + 1, n, nil
			}
			left--
			part = part[:i]
		}
		end -= size
	}
	return 0, n - left, nil
}

// countLines returns how many complete lines a stream has.
func countLines(r io.Reader) (lines int64, err error) {
	block := make([]byte, pieceSize)
	for {
		n, err := r.Read(block)
		lines += int64(bytes.Count(block[:n], []byte{'\n'}))
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
	}
}
