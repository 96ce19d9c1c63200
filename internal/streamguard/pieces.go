package streamguard

import "io"

// What a client may send at once on the connection of a stream, in bytes.
const (
	// maxPiece is the size into which frames with data are cut.
	maxPiece = 32 << 10
	// maxControl is the largest frame of SPDY that has no data. Its headers are compressed, and may
	// have a thousand times as much.
	maxControl = 16 << 10
	// maxMessage is the largest message of a WebSocket that cannot be cut.
	maxMessage = 4 << 20
)

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
