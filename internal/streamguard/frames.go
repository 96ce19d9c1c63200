package streamguard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Frames returns the guard of a connection with SPDY/3.1. It reads frames and hands them on, those
// with data in pieces. It fails at frames that are too large, and at more streams than these, which
// nobody expects; -1 is for any number. It calls unread when the library has the frame with which
// the client ends the connection: the library reads no more.
func Frames(from io.Reader, streams int, unread func()) io.Reader {
	return &frames{from: from, streams: streams, unread: unread}
}

// frames is what [Frames] returns.
type frames struct {
	from    io.Reader
	streams int // how many more the client may open
	next    head
	now     passing
	// data is what is left of a frame with data, and of its head the stream and the flags.
	data   int
	stream [4]byte
	flags  byte
	// ending says that the frame with which the client ends the connection is handed on. failed is
	// why nothing more is read.
	unread func()
	ending bool
	failed error
}

// Parts of the head of a frame (SPDY/3.1, sections 2.2 and 2.6).
const (
	spdyHead   = 8
	isControl  = 0x80
	synStream  = 1
	goAway     = 7
	lengthMask = 1<<24 - 1
)

// Read implements [io.Reader].
func (f *frames) Read(p []byte) (int, error) {
	for len(p) > 0 {
		n, err := f.now.read(f.from, p)
		if f.ending && len(f.now.head) == 0 && f.now.left == 0 {
			f.ending, f.failed = false, errGoneAway
			f.unread()
		}
		if n > 0 || err != nil {
			return n, err
		}
		switch {
		case f.failed != nil:
			return 0, f.failed
		case f.data > 0:
			f.piece()
		default:
			if err := f.begin(); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil
}

// begin reads the head of the next frame.
func (f *frames) begin() error {
	if err := f.next.fill(f.from, spdyHead); err != nil {
		return err
	}
	f.next.have = 0
	h := f.next.bytes[:spdyHead]
	length := int(binary.BigEndian.Uint32(h[4:]) & lengthMask)
	if h[0]&isControl == 0 && length > 0 {
		f.data, f.flags = length, h[4]
		copy(f.stream[:], h)
		return nil
	}
	if length > maxControl {
		f.failed = fmt.Errorf("a client sends a frame of SPDY with %d bytes of headers; %d are allowed", length, maxControl)
		return f.failed
	}
	kind := binary.BigEndian.Uint16(h[2:])
	switch {
	case h[0]&isControl == 0:
	case kind == synStream && f.streams == 0:
		f.failed = errors.New("a client opens more streams of SPDY than it has asked for")
		return f.failed
	case kind == synStream:
		f.streams = max(f.streams-1, -1)
	case kind == goAway:
		f.ending = true
	}
	f.now = passing{append([]byte(nil), h...), length}
	return nil
}

// piece begins the next piece of the frame with data. Only the last one has the flags.
func (f *frames) piece() {
	n := min(f.data, maxPiece)
	f.data -= n
	size := uint32(n)
	if f.data == 0 {
		size |= uint32(f.flags) << 24
	}
	f.now = passing{binary.BigEndian.AppendUint32(append([]byte(nil), f.stream[:]...), size), n}
}
