package streamguard

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Messages returns the guard of a WebSocket. It reads frames and hands them on, large ones in
// pieces, each with the first byte, which names the stream. Those of text are cut only if text is
// true: the protocol does not encode data. It fails at frames that are too large and cannot be cut.
func Messages(from io.Reader, text bool) io.Reader { return &messages{from: from, text: text} }

// messages is what [Messages] returns.
type messages struct {
	from io.Reader
	text bool
	next head
	now  passing
	// cut says that a frame is cut: kind is its first byte, data what is left of it, and channel
	// the first byte of its data. The next of its bytes has the mask's byte at place, and goes on
	// without.
	cut     bool
	kind    byte
	data    int
	channel byte
	mask    [maskSize]byte
	place   int
}

// Parts of the head of a frame (RFC 6455, section 5.2).
const (
	binaryFrame = 0x82 // the only one of its message, as is textFrame
	textFrame   = 0x81
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
	may := h[1]&hasMask != 0 && (h[0] == binaryFrame || m.text && h[0] == textFrame)
	if may && length > maxPiece && length < 1<<31 {
		if err := m.next.fill(m.from, size+maskSize+1); err != nil {
			return err
		}
		m.next.have = 0
		copy(m.mask[:], h[size:])
		m.cut, m.kind, m.data, m.place = true, h[0], int(length)-1, 1
		m.channel = h[size+maskSize] ^ m.mask[0]
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
	h := binary.BigEndian.AppendUint16([]byte{m.kind, hasMask | lengthOf2}, uint16(n+1))
	m.now = passing{append(append(h, make([]byte, maskSize)...), m.channel), n}
}
