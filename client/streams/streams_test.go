package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	runtimestreams "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"

	"github.com/berthd/berth/test/streams"
)

// runtime is a streaming server that calls a function for each command.
type runtime func(in io.Reader, out io.Writer) error

func (r runtime) Exec(
	_ context.Context, _ string, _ []string, in io.Reader, out, _ io.WriteCloser, _ bool,
	_ <-chan runtimestreams.TerminalSize,
) error {
	return r(in, out)
}

func (r runtime) Attach(
	context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan runtimestreams.TerminalSize,
) error {
	return errors.New("not here")
}

func (r runtime) PortForward(context.Context, string, int32, io.ReadWriteCloser) error {
	return errors.New("not here")
}

// serve starts the runtime and returns the URL of a command.
func serve(t *testing.T, r runtime) *url.URL {
	t.Helper()
	resp, err := streams.Serve(t, r).GetExec(&runtimeapi.ExecRequest{
		ContainerId: "c",
		Cmd:         []string{"x"},
		Stdin:       true,
		Stdout:      true,
	})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(resp.Url)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

func TestRun(t *testing.T) {
	u := serve(t, func(in io.Reader, out io.Writer) error {
		_, err := io.Copy(out, in)
		return err
	})
	var out bytes.Buffer
	if err := Run(t.Context(), dial, u,
		remotecommand.StreamOptions{Stdin: strings.NewReader("text"), Stdout: &out}); err != nil ||
		out.String() != "text" {
		t.Errorf("%q %v", out.String(), err)
	}
	u = serve(t, func(io.Reader, io.Writer) error { return utilexec.CodeExitError{Err: errors.New("7"), Code: 7} })
	var code exec.CodeExitError
	if err := Run(t.Context(), dial, u,
		remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard}); !errors.As(err, &code) ||
		code.Code != 7 {
		t.Errorf("exit code: %v", err)
	}
}

// conns keeps connections, so that a test can cut them.
type conns struct{ all []net.Conn }

func (c *conns) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := dial(ctx, network, address)
	c.all = append(c.all, conn)
	return conn, err
}

// TestLostConnection checks that a command whose end was not reported has not succeeded.
func TestLostConnection(t *testing.T) {
	leave := make(chan struct{})
	defer close(leave)
	u := serve(t, func(_ io.Reader, out io.Writer) error {
		fmt.Fprintln(out, "begun")
		<-leave
		return nil
	})
	var c conns
	cut := streams.WriterFunc(func([]byte) { _ = c.all[0].Close() })
	if err := Run(t.Context(), c.dial, u,
		remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: cut}); !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
}

// TestNoAnswer checks that a call ends with its context if the server does not answer.
func TestNoAnswer(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	}))
	defer ts.Close()
	defer close(leave)
	u, err := url.Parse(ts.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-entered
		cancel()
	}()
	if err := Run(ctx, dial, u,
		remotecommand.StreamOptions{Stdin: strings.NewReader(""), Stdout: io.Discard}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("got %v", err)
	}
}
