package native

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// What a client may send at once on the connection of a stream, in bytes. The libraries that read
// it keep up to 250 frames of SPDY for each connection, whatever their size, and whole messages of
// WebSockets.
const (
	// maxPiece is the size into which frames with data are cut.
	maxPiece = 32 << 10
	// maxControl is the largest frame of SPDY that has no data. Its headers are compressed, and may
	// have a thousand times as much.
	maxControl = 16 << 10
	// maxMessage is the largest message of a WebSocket that cannot be cut.
	maxMessage = 4 << 20
)

// streamsKey is the parameter of a stream's URL that says how many streams of SPDY the client may
// open. The library waits for ever with those that it does not expect, also when the client has
// left.
const streamsKey = "streams"

// withStreams adds to a stream's URL how many streams its client opens: one for errors, those that
// are asked for, and one for the sizes of a terminal.
func withStreams(target string, asked ...bool) string {
	n := 1
	for _, is := range asked {
		if is {
			n++
		}
	}
	return target + "?" + streamsKey + "=" + strconv.Itoa(n)
}

// guardStreams bounds what a client can have the handler keep.
func guardStreams(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guard := func(from io.Reader, _ func()) io.Reader { return &messages{from: from} }
		if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			streams := -1 // those of a port-forward come and go
			if text := r.URL.Query().Get(streamsKey); text != "" {
				streams, _ = strconv.Atoi(text)
			}
			guard = func(from io.Reader, unread func()) io.Reader {
				return &frames{from: from, streams: streams, unread: unread}
			}
		}
		handler.ServeHTTP(&guardedWriter{w, guard}, r)
	})
}

// guardedWriter gives the one who takes the connection over a guarded one.
type guardedWriter struct {
	http.ResponseWriter
	// guard returns the guard of what is read. The guard calls unread when nobody reads any more.
	guard func(from io.Reader, unread func()) io.Reader
}

// Unwrap is for http.ResponseController.
func (g *guardedWriter) Unwrap() http.ResponseWriter { return g.ResponseWriter }

// Hijack implements [http.Hijacker].
func (g *guardedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := http.NewResponseController(g.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	// The client's end is found by reading, which ends its command or attachment.
	unread := func() {
		_ = conn.SetReadDeadline(time.Time{})
		go func() { _, _ = io.Copy(io.Discard, conn) }() // until the handler or the client closes it
	}
	reader := bufio.NewReader(&closing{g.guard(both.Reader, unread), conn})
	return &guardedConn{conn, reader}, bufio.NewReadWriter(reader, both.Writer), nil
}

// closing closes a connection when nothing more can be read: the libraries that read it only stop.
type closing struct {
	io.Reader
	conn net.Conn
}

// Read reads. After a deadline it may be called again.
func (c *closing) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, errGoneAway) {
		_ = c.conn.Close()
	}
	return n, err
}

// errGoneAway is read after the frame with which a client ends a connection: its output may go on.
var errGoneAway = errors.New("the client ends the connection")

// guardedConn is a connection of which everything is read through a guard.
type guardedConn struct {
	net.Conn
	reader *bufio.Reader
}

// Read reads through the guard.
func (c *guardedConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// head is the head of a frame, of which a part may have come.
type head struct {
	bytes [16]byte
	have  int
}

// fill reads until the head has n bytes. It may be called again after an error, such as a deadline.
func (h *head) fill(from io.Reader, n int) error {
	for h.have < n {
		got, err := from.Read(h.bytes[h.have:n])
		h.have += got
		if err != nil && h.have < n {
			return err
		}
	}
	return nil
}

// passing is a frame that is handed on: first its head, then so many bytes as they come.
type passing struct {
	head []byte
	left int
}

// read hands on a part. It is 0 bytes if there is nothing to hand on.
func (f *passing) read(from io.Reader, p []byte) (int, error) {
	if len(f.head) > 0 {
		n := copy(p, f.head)
		f.head = f.head[n:]
		return n, nil
	}
	if f.left == 0 {
		return 0, nil
	}
	n, err := from.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

// frames reads frames of SPDY/3.1 and hands them on, those with data in pieces. It fails at frames
// that are too large, and at streams that nobody expects.
type frames struct {
	from    io.Reader
	streams int // how many more the client may open; -1 for any number
	next    head
	now     passing
	// data is what is left of a frame with data, and of its head the stream and the flags.
	data   int
	stream [4]byte
	flags  byte
	// unread is called when the library has the frame with which the client ends the connection: it
	// reads no more. ending says that this frame is handed on. failed is why nothing more is read.
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

// messages reads frames of a WebSocket and hands them on, large ones of binary data in pieces, each
// with the first byte, which names the stream. It fails at others that are too large.
type messages struct {
	from io.Reader
	next head
	now  passing
	// cut says that a frame is cut: data is what is left of it, and channel its first byte. The next
	// of its bytes has the mask's byte at place, and goes on without.
	cut     bool
	data    int
	channel byte
	mask    [maskSize]byte
	place   int
}

// Parts of the head of a frame (RFC 6455, section 5.2).
const (
	binaryFrame = 0x82 // the only one of its message
	hasMask     = 0x80
	smallHead   = 2
	lengthOf2   = 126 // says that the length is in the next two bytes
	lengthOf8   = 127 // says that it is in the next eight
	maskSize    = 4
)

// Read implements [io.Reader].
func (m *messages) Read(p []byte) (int, error) {
	for len(p) > 0 {
		ofHead := len(m.now.head) > 0
		n, err := m.now.read(m.from, p)
		for i := range p[:n] {
			if m.cut && !ofHead {
				p[i] ^= m.mask[m.place%maskSize]
				m.place++
			}
		}
		if n > 0 || err != nil {
			return n, err
		}
		if m.cut = m.data > 0; m.cut {
			m.piece()
		} else if err := m.begin(); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// begin reads the head of the next frame.
func (m *messages) begin() error {
	if err := m.next.fill(m.from, smallHead); err != nil {
		return err
	}
	h := m.next.bytes[:]
	size, length := smallHead, uint64(h[1]&^hasMask)
	switch length {
	case lengthOf2:
		size += 2
	case lengthOf8:
		size += 8
	}
	if err := m.next.fill(m.from, size); err != nil {
		return err
	}
	switch length {
	case lengthOf2:
		length = uint64(binary.BigEndian.Uint16(h[smallHead:]))
	case lengthOf8:
		length = binary.BigEndian.Uint64(h[smallHead:])
	}
	if masked := h[1]&hasMask != 0; masked && h[0] == binaryFrame && length > maxPiece && length < 1<<32 {
		if err := m.next.fill(m.from, size+maskSize+1); err != nil {
			return err
		}
		m.next.have = 0
		copy(m.mask[:], h[size:])
		m.cut, m.data, m.place, m.channel = true, int(length)-1, 1, h[size+maskSize]^m.mask[0]
		m.piece()
		return nil
	}
	if length > maxMessage {
		return fmt.Errorf("a client sends a WebSocket message of %d bytes; %d are allowed", length, maxMessage)
	}
	m.next.have = 0
	m.now = passing{append([]byte(nil), h[:size]...), int(length)}
	if h[1]&hasMask != 0 {
		m.now.left += maskSize
	}
	return nil
}

// piece begins the next piece of the frame that is cut, with a mask that changes nothing.
func (m *messages) piece() {
	n := min(m.data, maxPiece)
	m.data -= n
	h := binary.BigEndian.AppendUint16([]byte{binaryFrame, hasMask | lengthOf2}, uint16(n+1))
	m.now = passing{append(append(h, make([]byte, maskSize)...), m.channel), n}
}
