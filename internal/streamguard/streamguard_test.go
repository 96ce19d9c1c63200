package streamguard

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// control is a frame of SPDY without data, and frame one with data (SPDY/3.1, section 2.2).
func control(kind byte, payload string) string {
	return "\x80\x03\x00" + string(kind) + sized(0, payload)
}

func frame(stream byte, flags byte, data string) string {
	return "\x00\x00\x00" + string(stream) + sized(flags, data)
}

func sized(flags byte, data string) string {
	n := len(data)
	return string([]byte{flags, byte(n >> 16), byte(n >> 8), byte(n)}) + data
}

// ping is the kind of a frame that both sides may send.
const ping = 6

// A client's frames arrive whole, in pieces of a bounded size, however they come.
func TestFramesAreCut(t *testing.T) {
	const fin = 1
	large := strings.Repeat("0123456789", 7_000)
	sent := control(synStream, "headers") + frame(1, 0, large) + control(ping, "1234") + frame(3, fin, "x") +
		frame(1, fin, large[:maxPiece+1]) + frame(5, fin, "")
	want := control(synStream, "headers") + frame(1, 0, large[:maxPiece]) + frame(1, 0, large[maxPiece:2*maxPiece]) +
		frame(1, 0, large[2*maxPiece:]) + control(ping, "1234") + frame(3, fin, "x") + frame(1, 0, large[:maxPiece]) +
		frame(1, fin, large[maxPiece:maxPiece+1]) + frame(5, fin, "")
	for name, reader := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader,
		"with the end": iotest.DataErrReader,
	} {
		got, err := io.ReadAll(&frames{from: reader(strings.NewReader(sent)), streams: 1, unread: func() {}})
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(want), err)
		}
	}
	// the end of the connection is told once it is handed on, and nothing after it is read
	unread := 0
	ended := control(goAway, "12345678")
	got, err := io.ReadAll(&frames{from: strings.NewReader(ended + sent), streams: 1, unread: func() { unread++ }})
	if !errors.Is(err, errGoneAway) || string(got) != ended || unread != 1 {
		t.Errorf("an end: %q, %v, told %d times", got, err, unread)
	}
	// a deadline may come within a head
	broken := iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(sent)))
	all := &frames{from: broken, streams: 1}
	before, err := io.ReadAll(all)
	after, rest := io.ReadAll(all)
	if !errors.Is(err, iotest.ErrTimeout) || rest != nil || string(before)+string(after) != want {
		t.Errorf("%v after %d bytes, then %v after %d", err, len(before), rest, len(after))
	}
}

// What a library would keep without a bound ends the connection.
func TestHostileFrames(t *testing.T) {
	two := control(synStream, "a") + control(synStream, "b")
	for name, c := range map[string]struct {
		sent    string
		streams int
		want    string
	}{
		"as many streams as asked": {two, 2, ""},
		"one more stream":          {two, 1, "more streams"},
		"any number of streams":    {two + two, -1, ""},
		"large headers":            {control(ping, strings.Repeat("x", maxControl+1)), -1, "bytes of headers"},
	} {
		_, err := io.Copy(io.Discard, &frames{from: strings.NewReader(c.sent), streams: c.streams})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Messages of WebSockets arrive as they are, unless they are too large.
func TestMessages(t *testing.T) {
	message := func(masked byte, head []byte, size int) []byte {
		out := append([]byte{0x82, head[0] | masked}, head[1:]...)
		if masked != 0 {
			out = append(out, 1, 2, 3, 4)
		}
		return append(out, bytes.Repeat([]byte("z"), size)...)
	}
	sent := bytes.Join([][]byte{
		message(hasMask, []byte{5}, 5), message(0, []byte{0}, 0), message(hasMask, []byte{lengthOf2, 1, 0}, 256),
		message(0, []byte{lengthOf8, 0, 0, 0, 0, 0, 1, 0, 1}, 65_537),
	}, nil)
	for name, from := range map[string]io.Reader{
		"at once": bytes.NewReader(sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(sent)),
	} {
		if got, err := io.ReadAll(&messages{from: from}); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: %d bytes of %d, %v", name, len(got), len(sent), err)
		}
	}
	// a large one is cut, and its mask taken away
	large, key := strings.Repeat("0123456789", 7_000), []byte{9, 8, 7, 6}
	masked := []byte{binaryFrame, hasMask | lengthOf8, 0, 0, 0, 0, 0, 1, 0x11, 0x71, key[0], key[1], key[2], key[3]}
	for i, b := range []byte("\x00" + large) {
		masked = append(masked, b^key[i%maskSize])
	}
	small := string(message(hasMask, []byte{5}, 5))
	want := ""
	for _, part := range []string{large[:maxPiece], large[maxPiece : 2*maxPiece], large[2*maxPiece:]} {
		n := len(part) + 1
		want += string([]byte{binaryFrame, hasMask | lengthOf2, byte(n >> 8), byte(n), 0, 0, 0, 0, 0}) + part
	}
	for name, from := range map[string]io.Reader{
		"at once": strings.NewReader(string(masked) + small), "byte by byte": iotest.OneByteReader(
			strings.NewReader(string(masked) + small)),
	} {
		if got, err := io.ReadAll(&messages{from: from}); err != nil || string(got) != want+small {
			t.Errorf("a large one %s: %d bytes, want %d, %v", name, len(got), len(want+small), err)
		}
	}
	for _, head := range [][]byte{{lengthOf8, 0, 0, 0, 0, 1, 0, 0, 0}, {lengthOf8, 255, 0, 0, 0, 0, 0, 0, 0}} {
		if _, err := io.ReadAll(&messages{from: bytes.NewReader(message(0, head, 0))}); err == nil ||
			!strings.Contains(err.Error(), "are allowed") {
			t.Errorf("% x: %v", head, err)
		}
	}
}

// Text is cut only where the protocol does not encode data.
func TestTextMessages(t *testing.T) {
	const size = maxPiece + 10
	sent := string([]byte{textFrame, hasMask | lengthOf8, 0, 0, 0, 0, 0, 0, size >> 8, size & 0xff, 0, 0, 0, 0}) +
		strings.Repeat("x", size)
	cut := string([]byte{textFrame, hasMask | lengthOf2, 0x80, 1, 0, 0, 0, 0}) + strings.Repeat("x", maxPiece+1) +
		string([]byte{textFrame, hasMask | lengthOf2, 0, 10, 0, 0, 0, 0}) + strings.Repeat("x", 10)
	for text, want := range map[bool]string{false: sent, true: cut} {
		if got, err := io.ReadAll(Messages(strings.NewReader(sent), text)); err != nil || string(got) != want {
			t.Errorf("text %v: %d bytes, want %d, %v", text, len(got), len(want), err)
		}
	}
}
