package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	runtimestreams "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/berthd/berth/test/streams"
)

// commands is a runtime that runs a few commands.
type commands struct{ ended chan error }

func (c *commands) Exec(
	_ context.Context, _ string, cmd []string, in io.Reader, out, errOut io.WriteCloser, _ bool,
	resize <-chan runtimestreams.TerminalSize,
) error {
	switch cmd[0] {
	case "both":
		fmt.Fprintln(out, "on stdout")
		fmt.Fprintln(errOut, "on stderr")
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "wait": // until the input ends
		fmt.Fprintln(out, "waiting")
		_, err := io.Copy(io.Discard, in)
		c.ended <- err
		return err
	case "size":
		for range 2 {
			size := <-resize
			fmt.Fprintf(out, "%dx%d\n", size.Width, size.Height)
		}
	case "exit":
		return utilexec.CodeExitError{Err: errors.New("exit 7"), Code: 7}
	default:
		return errors.New("no such program")
	}
	return nil
}

func (c *commands) Attach(
	_ context.Context, id string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan runtimestreams.TerminalSize,
) error {
	fmt.Fprintln(out, "attached to", id)
	_, err := io.Copy(out, in)
	return err
}

func (c *commands) PortForward(context.Context, string, int32, io.ReadWriteCloser) error {
	return errors.New("not here")
}

// withStreams starts a server whose runtime has a real streaming server, and returns an address
// that leads to the server's socket.
func withStreams(t *testing.T) (c *commands, base string) {
	t.Helper()
	c = &commands{ended: make(chan error, 1)}
	r := start(t, &fixture{streaming: streams.Serve(t, c)})
	return c, streams.Bridge(t, r.socket)
}

const execPath = "/exec/default/web-node/main?command="

func TestWebSocketExec(t *testing.T) {
	_, base := withStreams(t)
	var out, errOut bytes.Buffer
	if err := streams.WebSocket(t.Context(), t, base, execPath+"both",
		remotecommand.StreamOptions{Stdout: &out, Stderr: &errOut}); err != nil {
		t.Error(err)
	}
	if out.String() != "on stdout\n" || errOut.String() != "on stderr\n" {
		t.Errorf("%q %q", out.String(), errOut.String())
	}
	// The end of the input is told: without it, cat would not end.
	text := strings.Repeat("some input\n", 10_000)
	out.Reset()
	if err := streams.WebSocket(t.Context(), t, base, execPath+"cat",
		remotecommand.StreamOptions{Stdin: strings.NewReader(text), Stdout: &out}); err != nil || out.String() != text {
		t.Errorf("cat: %d bytes, want %d, %v", out.Len(), len(text), err)
	}
	var code exec.CodeExitError
	if err := streams.WebSocket(t.Context(), t, base, execPath+"exit",
		remotecommand.StreamOptions{Stdout: &out}); !errors.As(err, &code) || code.Code != 7 {
		t.Errorf("exit code: %v", err)
	}
	if err := streams.WebSocket(t.Context(), t, base, execPath+"nosuch",
		remotecommand.StreamOptions{Stdout: &out}); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("no program: %v", err)
	}
	if err := streams.WebSocket(t.Context(), t, base, "/exec/default/web-node/waits?command=cat",
		remotecommand.StreamOptions{Stdout: &out}); err == nil ||
		!strings.Contains(err.Error(), `container not found ("waits")`) {
		t.Errorf("a container that does not run: %v", err)
	}
	// The older protocol is the runtime's own.
	out.Reset()
	if err := streams.WebSocket(t.Context(), t, base, execPath+"both", remotecommand.StreamOptions{Stdout: &out},
		"v4.channel.k8s.io"); err != nil || out.String() != "on stdout\n" {
		t.Errorf("v4: %q %v", out.String(), err)
	}
}

func TestWebSocketAttach(t *testing.T) {
	_, base := withStreams(t)
	var out bytes.Buffer
	err := streams.WebSocket(t.Context(), t, base, "/attach/default/web-node/main?x=",
		remotecommand.StreamOptions{Stdin: strings.NewReader("hello\n"), Stdout: &out})
	if err != nil || out.String() != "attached to id-main\nhello\n" {
		t.Errorf("%q %v", out.String(), err)
	}
}

// queue is a terminal's sizes.
type queue []remotecommand.TerminalSize

func (q *queue) Next() *remotecommand.TerminalSize {
	if len(*q) == 0 {
		return nil
	}
	size := (*q)[0]
	*q = (*q)[1:]
	return &size
}

func TestWebSocketTerminal(t *testing.T) {
	_, base := withStreams(t)
	var out bytes.Buffer
	err := streams.WebSocket(t.Context(), t, base, execPath+"size", remotecommand.StreamOptions{
		Stdin:             strings.NewReader(""),
		Stdout:            &out,
		Tty:               true,
		TerminalSizeQueue: &queue{{Width: 80, Height: 24}, {Width: 100, Height: 40}},
	})
	if err != nil || out.String() != "80x24\n100x40\n" {
		t.Errorf("%q %v", out.String(), err)
	}
}

// endless is a stream that does not end.
type endless struct {
	unit string
	read int
}

func (e *endless) Read(p []byte) (int, error) {
	n := copy(p, e.unit)
	e.read += n
	return n, nil
}

// What does not become a size takes no more memory than a size has, while many sizes are read.
func TestTerminalSizesAreBounded(t *testing.T) {
	for name, stream := range map[string]*endless{
		"a long number": {unit: "1"},
		"a long string": {unit: "x"},
		"blanks":        {unit: " "},
	} {
		first := strings.NewReader(strings.Repeat(`{"Width": 80, "Height": 24}`+strings.Repeat(" ", 100), 100) + `{"Width": "`)
		if name == "a long number" {
			first = strings.NewReader(`{"Width": 80, "Height": 24}{"Width": `)
		}
		q := newSizes(t.Context())
		sizes := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.read(io.MultiReader(first, stream))
		}()
		for open := true; open; {
			select {
			case <-q.next:
				sizes++
			case <-done:
				open = false
			}
		}
		if sizes == 0 || stream.read > 4*maxSize {
			t.Errorf("%s: %d sizes, %d bytes read", name, sizes, stream.read)
		}
	}
}

// TestWebSocketCallerGone: a caller that goes away leaves nothing behind; the command is at the end
// of its input.
func TestWebSocketCallerGone(t *testing.T) {
	c, base := withStreams(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, w := io.Pipe()
	defer w.Close()
	err := streams.WebSocket(ctx, t, base, execPath+"wait",
		remotecommand.StreamOptions{Stdin: in, Stdout: streams.WriterFunc(func([]byte) { cancel() })})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	select {
	case <-c.ended:
	case <-time.After(time.Minute):
		t.Error("the command was not told")
	}
}

// TestWebSocketServerEnds under a command that runs.
func TestWebSocketServerEnds(t *testing.T) {
	c := &commands{ended: make(chan error, 1)}
	r := start(t, &fixture{streaming: streams.Serve(t, c)})
	in, w := io.Pipe()
	defer w.Close()
	stopped := make(chan error, 1)
	err := streams.WebSocket(t.Context(), t, streams.Bridge(t, r.socket), execPath+"wait", remotecommand.StreamOptions{
		Stdin: in, Stdout: streams.WriterFunc(func([]byte) { go func() { stopped <- r.stop() }() }),
	})
	if err == nil {
		t.Error("a command whose server ended has ended well")
	}
	if err := <-stopped; err != nil {
		t.Errorf("Run: %v", err)
	}
	<-c.ended
}
