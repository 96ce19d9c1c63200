package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// rawSocket is a WebSocket of protocol v5 whose client makes its messages as it likes.
type rawSocket struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// openRaw opens a command's streams.
func openRaw(t *testing.T, base, path string) *rawSocket {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: berth\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Origin: http://berth\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n"+
		"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n", path)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%s: %+v %v", path, resp, err)
	}
	return &rawSocket{t, conn, in}
}

// begin sends the head of a message with so many bytes; their mask changes nothing.
func (s *rawSocket) begin(kind byte, size int) {
	s.t.Helper()
	head := binary.BigEndian.AppendUint64([]byte{kind, 0x80 | 127}, uint64(size))
	s.send(string(head) + "\x00\x00\x00\x00")
}

func (s *rawSocket) send(data string) {
	s.t.Helper()
	if _, err := io.WriteString(s, data); err != nil {
		s.t.Fatal(err)
	}
}

// output reads so many bytes of standard output.
func (s *rawSocket) output(size int) string {
	s.t.Helper()
	var out bytes.Buffer
	for out.Len() < size {
		head := make([]byte, 2)
		if _, err := io.ReadFull(s.in, head); err != nil {
			s.t.Fatalf("after %d bytes: %v", out.Len(), err)
		}
		length := uint64(head[1])
		if extra := map[uint64]int{126: 2, 127: 8}[length]; extra > 0 {
			more := make([]byte, 8)
			if _, err := io.ReadFull(s.in, more[8-extra:]); err != nil {
				s.t.Fatal(err)
			}
			length = binary.BigEndian.Uint64(more)
		}
		data := make([]byte, length)
		if _, err := io.ReadFull(s.in, data); err != nil {
			s.t.Fatal(err)
		}
		if length == 0 || data[0] != stdoutChannel {
			s.t.Fatalf("a message of another stream: %.200q", data)
		}
		out.Write(data[1:])
	}
	return out.String()
}

// The command reads a large message while it comes: the agent does not keep the whole of it, and so
// it may have any size.
func TestWebSocketLargeMessages(t *testing.T) {
	_, base := withStreams(t)
	const part = 64 << 10
	for name, of := range map[string]struct {
		kind  byte
		parts int
	}{"binary": {0x82, 33 << 20 / part}, "text": {0x81, 1 << 20 / part}} {
		s, parts := openRaw(t, base, execPath+"cat&input=1&output=1"), of.parts
		text := strings.Repeat("0123456789abcdef", part/16)
		s.begin(of.kind, 1+part*parts)
		s.send("\x00")
		for i := range parts {
			s.send(text)
			if i == 0 {
				s.send(text) // the agent keeps up to a piece until the rest of it has come
			}
			if got := s.output(part); got != text {
				t.Fatalf("%s: part %d is another", name, i)
			}
			if i == parts-2 {
				break
			}
		}
		if got := s.output(part); got != text {
			t.Fatalf("%s: the last part is another", name)
		}
	}
}
