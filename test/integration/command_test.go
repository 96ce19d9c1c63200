//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// binary returns the berth that the agent runs.
func binary(t *testing.T, a *env.Agent) string {
	t.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", a.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(path, " (deleted)")
}

// command is a verb in progress.
type command struct {
	agent       *env.Agent
	cmd         *exec.Cmd
	out, errOut safeBuffer
}

// begin starts a verb that runs until it is interrupted or its input ends.
func begin(t *testing.T, a *env.Agent, in io.Reader, args ...string) *command {
	t.Helper()
	x := &command{
		agent: a,
		cmd: exec.CommandContext(t.Context(), binary(t, a),
			append([]string{args[0], "--socket", a.Socket}, args[1:]...)...),
	}
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = in, &x.out, &x.errOut
	x.cmd.WaitDelay = time.Minute
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return x
}

// waitOut waits until the verb has printed the text.
func (x *command) waitOut(t *testing.T, text string) {
	t.Helper()
	env.Eventually(t, text, func() error {
		if !strings.Contains(x.out.String(), text) {
			return fmt.Errorf("it prints %q, %q", x.out.String(), x.errOut.String())
		}
		return nil
	})
}

// wait waits for the verb's end and returns its exit code.
func (x *command) wait(t *testing.T) int {
	t.Helper()
	if err := x.agent.Await(x.cmd); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return x.cmd.ProcessState.ExitCode()
}

// interrupt ends the verb as Ctrl-C does. The verb must not report this as an error.
func (x *command) interrupt(t *testing.T) {
	t.Helper()
	if err := x.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(2*time.Minute, func() {
		t.Errorf("%v goes on after its interrupt", x.cmd.Args[1:])
		_ = x.cmd.Process.Kill()
	})
	defer late.Stop()
	if code := x.wait(t); code != 0 && code != 130 {
		t.Errorf("interrupted, it ends with %d, %q", code, x.errOut.String())
	}
}

// safeBuffer can be read while a process writes to it.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
