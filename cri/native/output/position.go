package output

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// positionVersion begins the file of a position.
const positionVersion = 0x6265_7274_6801

// position says which output is in the log. It has a fixed size below that of a page, so a kill
// finds either the old or the new one in its file.
type position struct {
	Version uint64
	// Done is how many bytes of each stream are in the log.
	Done [2]int64
	// Begun are the lines that are being written.
	Begun write
}

// write are lines of a log that are being written; there are none if To is 0.
type write struct {
	// From and To are the bytes of the stream in its journal that the lines are made of.
	Stream, From, To int64
	// Time is the lines' time, in nanoseconds since 1970.
	Time int64
	// Final says that no more output comes.
	Final bool
	// Inode is the log's file, and Size its length before the write.
	Inode uint64
	Size  int64
}

// errCut says that a position is not whole.
var errCut = errors.New("the position in the output is not whole")

// loadPosition reads a position. That of a new file is zero. If the position cannot be used, the
// error is errCut.
func loadPosition(f *os.File) (position, error) {
	data := make([]byte, binary.Size(position{}))
	n, err := f.ReadAt(data, 0)
	if errors.Is(err, io.EOF) && n == 0 {
		return position{}, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return position{}, fmt.Errorf("read the position in the output: %w", err)
	}
	var p position
	if _, err := binary.Decode(data, binary.LittleEndian, &p); err != nil || n < len(data) ||
		p.Version != positionVersion {
		return position{}, errCut
	}
	return p, nil
}

// save writes the position.
func (p position) save(f *os.File) error {
	p.Version = positionVersion
	data, err := binary.Append(nil, binary.LittleEndian, p)
	if err == nil {
		_, err = f.WriteAt(data, 0)
	}
	if err != nil {
		return fmt.Errorf("record the position in the output: %w", err)
	}
	return nil
}
