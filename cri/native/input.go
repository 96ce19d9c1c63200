package native

import (
	"bytes"
	"context"
	"io"
	"sync"

	"github.com/containerd/containerd/v2/pkg/cio"
)

// input is what a container reads. It outlives those who write to it. Unlike those of an [io.Pipe],
// a write ends with its client, though the container reads nothing.
type input struct {
	pieces chan []byte
	ended  chan struct{}
	ending sync.Once
	rest   []byte // of the last piece; only Read uses it

	mu      sync.Mutex
	copying cio.IO // nil before the start
}

func newInput() *input { return &input{pieces: make(chan []byte), ended: make(chan struct{})} }

// Read waits for input, and reads it until its end. Only one goroutine reads.
func (i *input) Read(p []byte) (int, error) {
	if len(i.rest) == 0 {
		select {
		case i.rest = <-i.pieces:
		case <-i.ended:
			return 0, io.EOF
		}
	}
	n := copy(p, i.rest)
	i.rest = i.rest[n:]
	return n, nil
}

// feed copies a client's input until its end, or that of the container's input or of ctx.
func (i *input) feed(ctx context.Context, client io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			select {
			case i.pieces <- bytes.Clone(buf[:n]):
			case <-i.ended:
				return
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// end ends the input. Ending twice is allowed.
func (i *input) end() { i.ending.Do(func() { close(i.ended) }) }

// close ends the input and its copying. It does nothing without one; closing twice is allowed.
func (i *input) close() {
	if i == nil {
		return
	}
	i.end()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.copying != nil {
		i.copying.Cancel()
		_ = i.copying.Close()
	}
	i.copying = nil
}
