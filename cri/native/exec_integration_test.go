//go:build integration

package native

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/berthd/berth/test/env"
)

// Containerd is frozen before a command starts, and while one runs. That says nothing about the
// commands: none is said to have outlived its time.
func TestCommandsOfSilentContainerd(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-silent")
	r := h.runtime(t)
	p := h.newPod(t, r, "web", "", nil)
	id := p.start(p.container("main", "sleep 1000"))
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(h.ContainerdPID(), s); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { signal(syscall.SIGCONT) })
	// counts counts the commands that run.
	counts := func() (n string, err error) {
		resp, err := r.ExecSync(t.Context(), id, []string{"sh", "-c", "ps | grep -c '[s]leep 100$'"}, time.Minute)
		return strings.TrimSpace(string(resp.GetStdout())), err
	}

	running := make(chan error, 1)
	go func() {
		// as a prober calls it, which allows some seconds more
		long, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		_, err := r.ExecSync(long, id, []string{"sleep", "100"}, 10*time.Second)
		running <- err
	}()
	env.Eventually(t, "the command to run", func() error {
		if n, err := counts(); err != nil || n != "1" {
			return errors.Join(err, errors.New(n+" run"))
		}
		return nil
	})
	signal(syscall.SIGSTOP)
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := r.ExecSync(short, id, []string{"sleep", "100"}, time.Second); !errdefs.IsUnavailable(err) ||
		short.Err() == nil {
		t.Errorf("a command that containerd does not start ends with %v", err)
	}
	if err := <-running; !errdefs.IsUnavailable(err) {
		t.Errorf("a command that containerd says nothing about ends with %v", err)
	}
	signal(syscall.SIGCONT)
	env.Eventually(t, "the commands to be killed", func() error {
		if n, err := counts(); err != nil || n != "0" {
			return errors.Join(err, errors.New(n+" run"))
		}
		return nil
	})
	p.remove()
}
