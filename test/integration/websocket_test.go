//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/streams"
)

// cliWebSocket runs exec and attach as kubectl does, by WebSocket. The client can only connect to
// ports, so a bridge leads to the socket.
func cliWebSocket(t *testing.T, _ *env.Env, a *env.Agent) {
	base := streams.Bridge(t, a.Socket)
	run := func(ctx context.Context, path string, query url.Values, opts remotecommand.StreamOptions) error {
		return streams.WebSocket(ctx, t, base, path+"?"+query.Encode(), opts)
	}
	command := func(words ...string) url.Values { return url.Values{"command": words} }
	const shell = "/exec/default/server-node/shell"

	var out, errOut bytes.Buffer
	text := strings.Repeat("some input\n", 10_000)
	err := run(t.Context(), shell, command("sh", "-c", "cat; echo done >&2"), remotecommand.StreamOptions{
		Stdin: strings.NewReader(text), Stdout: &out, Stderr: &errOut,
	})
	if err != nil || out.String() != text || errOut.String() != "done\n" {
		t.Errorf("%d bytes, want %d, %q, %v", out.Len(), len(text), errOut.String(), err)
	}
	var code exec.CodeExitError
	if err := run(t.Context(), shell, command("sh", "-c", "exit 7"), remotecommand.StreamOptions{
		Stdout: io.Discard,
	}); !errors.As(err, &code) || code.Code != 7 {
		t.Errorf("exit code: %v", err)
	}
	if err := run(t.Context(), shell, command("no-such-program"), remotecommand.StreamOptions{
		Stdout: io.Discard,
	}); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("a program that is not there: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer w.Close()
	var heard safeBuffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, "/attach/default/server-node/shell", url.Values{}, remotecommand.StreamOptions{
			Stdin: in, Stdout: &heard,
		})
	}()
	env.Eventually(t, "an echo", func() error {
		if _, err := w.WriteString("by websocket\n"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(heard.String(), "heard by websocket\n") {
			return errors.New(heard.String())
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("attach ends with %v", err)
	}
}
