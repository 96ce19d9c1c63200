package logs

import (
	"bytes"
	"errors"
	"io"
	"os"
)

// tailStart returns the offset at which the last n complete lines begin.
func tailStart(f *os.File, n int64) (int64, error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	return tailOffset(f, end, n)
}

// tailOffset reads blocks from a file's end back until it has seen the end of the line before the last n.
func tailOffset(f io.ReaderAt, end, n int64) (int64, error) {
	block := make([]byte, pieceSize)
	for end > 0 {
		size := min(end, int64(len(block)))
		part := block[:size]
		read, err := f.ReadAt(part, end-size)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		part = part[:read] // shorter only where the file was truncated meanwhile
		for {
			i := bytes.LastIndexByte(part, '\n')
			if i < 0 {
				break
			}
			if n == 0 {
				return end - size + int64(i) + 1, nil
			}
			n--
			part = part[:i]
		}
		end -= size
	}
	return 0, nil
}
