//go:build integration

package integration

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
)

// TestRunInterrupted interrupts berth run at later and later moments of its start. The command
// leaves nothing of its pod, however much of the pod it had made.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	root := filepath.Join(e.Dir, "run")
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	spec := "{terminationGracePeriodSeconds: 1, containers: [{name: main, image: berth.local/busybox:v1, " +
		"command: [sleep, '60']}]}"
	if err := os.WriteFile(pod, []byte("{apiVersion: v1, kind: Pod, metadata: {name: cut}, spec: "+spec+"}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	for after := 20 * time.Millisecond; after < 400*time.Millisecond; after += 40 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		cmd := exec.CommandContext(ctx, binary(t, a), "run", pod, "--config", filepath.Join(a.Home, "berth.yaml"),
			"--root-dir", root)
		var errOut bytes.Buffer
		cmd.Stderr = &errOut
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(after, func() { _ = cmd.Process.Signal(unix.SIGINT) })
		_ = cmd.Wait()
		if ctx.Err() != nil {
			t.Errorf("interrupted after %s, it goes on: %s", after, errOut.String())
		}
		cancel()
		if strings.Contains(errOut.String(), "FailedCreatePodSandBox") {
			t.Errorf("interrupted after %s, it is in the way of what the one before it has left: %s", after,
				errOut.String())
		}
		if _, err := os.Stat(root); !os.IsNotExist(err) {
			t.Errorf("interrupted after %s, it leaves its folder (%v): %s", after, err, errOut.String())
		}
		if left := e.LeaksOf("cut-", "berth-run"); len(left) > 0 {
			t.Errorf("interrupted after %s, it leaves %q: %s", after, left, errOut.String())
		}
	}
	nothingLeft(t, func() []string { return e.LeaksOf("cut-", "berth-run") })
}
