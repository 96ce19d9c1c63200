//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
)

// TestFullDisk fills the file system of the agent's root directory. Pods run on and can be removed,
// and new pods wait and report what they wait for. A new agent after a kill adopts the pods. Once
// there is room, everything that waited is done.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(), env.AgentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", a.RootDir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := errors.Join(a.Stop(), unix.Unmount(a.RootDir, 0)); err != nil {
			t.Errorf("unmount the small disk: %v", err)
		}
	})
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"steady", "leaving"} {
		put(t, a, name, sleeper)
	}
	a.WaitReady(t, "steady", "leaving")
	before := running(podOf(t, a, "steady"))

	ballast := filepath.Join(a.RootDir, "ballast")
	fill(t, ballast)
	put(t, a, "late", sleeper)
	env.Eventually(t, "why about the full disk", func() error {
		s := why(t, a, "late")
		if s.Step == "" || s.NextRetry == nil || !strings.Contains(s.WaitsFor, "no space left") {
			return fmt.Errorf("step %q waits for %q, next retry %v", s.Step, s.WaitsFor, s.NextRetry)
		}
		return nil
	})
	removed(t, e, a, "leaving")
	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "steady")
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "late", "steady")
	if after := running(podOf(t, a, "steady")); after != before {
		t.Errorf("the steady pod was %s and is %s", before, after)
	}
	removed(t, e, a, "late")
	removed(t, e, a, "steady")
	nothingLeft(t, func() (left []string) {
		for _, leak := range e.Leaks() {
			if leak != "mount "+a.RootDir {
				left = append(left, leak)
			}
		}
		return left
	})
}

// fill writes to the file until the file system is full.
func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for err == nil {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("fill the disk: %v", err)
		}
		err = nil
	}
}

// freeze stops containerd where it is, and returns what lets it go on, which may be called twice.
func freeze(t *testing.T, e *env.Env) (thaw func()) {
	t.Helper()
	if err := syscall.Kill(e.ContainerdPID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := syscall.Kill(e.ContainerdPID(), syscall.SIGCONT); err != nil {
			t.Errorf("thaw containerd: %v", err)
		}
	}
}

// TestFrozenRuntime freezes containerd for a while. The agent answers and reports what it waits
// for. No healthy container is restarted because its probe could not run, and changes from that
// time take effect afterwards.
func TestFrozenRuntime(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	put(t, a, "probed",
		sleeper+
			"    livenessProbe: {exec: {command: [/testapp, exit, \"0\"]}, periodSeconds: 1, timeoutSeconds: 10, "+
			"failureThreshold: 2}\n")
	put(t, a, "leaving", sleeper)
	a.WaitReady(t, "probed", "leaving")
	before := running(podOf(t, a, "probed"))
	thaw := freeze(t, e)
	defer thaw()
	put(t, a, "coming", sleeper)
	a.RemoveManifest(t, "leaving.yaml")
	env.Eventually(t, "why about the frozen runtime", func() error {
		s := why(t, a, "coming")
		if s.Step == "" ||
			!strings.Contains(s.WaitsFor, "has been silent for") && !strings.Contains(s.WaitsFor, "has taken") {
			return fmt.Errorf("step %q waits for %q, next retry %v", s.Step, s.WaitsFor, s.NextRetry)
		}
		return nil
	})
	env.Eventually(t, "status to name the silent runtime", func() error {
		out, errOut, code := a.CLI("status")
		if code != 3 || !strings.Contains(out, ": no answer for ") || !strings.Contains(out, "does not answer since") {
			return fmt.Errorf("code %d, %s%s", code, out, errOut)
		}
		return nil
	})
	waitEvent(t, a, "RuntimeUnavailable", "The container runtime does not answer")
	if got := metric(t, a, "berth_runtime_up"); got != "0" {
		t.Errorf("berth_runtime_up %q", got)
	}
	time.Sleep(20 * time.Second) // the time of the probes that would fail, which is what this test is about
	if out, errOut, code := a.CLI("ps"); code != 0 || !strings.Contains(out, "probed") ||
		!strings.Contains(errOut, "what follows is what was last known") {
		t.Errorf("berth ps: code %d, %q, %q", code, out, errOut)
	}
	thaw()
	a.WaitReady(t, "coming", "probed")
	a.WaitGone(t, "leaving")
	waitEvent(t, a, "RuntimeAvailable", "answers again")
	env.Eventually(t, "status of a node that is well", func() error {
		if out, errOut, code := a.CLI("status"); code != 0 {
			return fmt.Errorf("code %d, %s%s", code, out, errOut)
		}
		return nil
	})
	if after := running(podOf(t, a, "probed")); after != before {
		t.Errorf("the probed pod was %s and is %s", before, after)
	}
	removed(t, e, a, "coming")
	removed(t, e, a, "probed")
	nothingLeft(t, e.Leaks)
}

// TestOperatorOfAFrozenRuntime stops, restarts and starts pods while containerd is frozen. Each
// command says at once that the runtime does not answer, and what is on record.
func TestOperatorOfAFrozenRuntime(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	put(t, a, "web", sleeper)
	put(t, a, "steady", sleeper)
	a.WaitReady(t, "web", "steady")
	before := running(podOf(t, a, "steady"))
	thaw := freeze(t, e)
	defer thaw()
	refuses := func(want string, args ...string) {
		t.Helper()
		if out, errOut, code := a.CLI(args...); code != 1 || !strings.Contains(errOut, want) {
			t.Errorf("berth %s: code %d, %q, %q", strings.Join(args, " "), code, out, errOut)
		}
	}
	refuses("does not answer since", "restart", "steady")
	refuses("the restart is not recorded", "restart", "steady")
	refuses("is recorded, and takes effect when the runtime answers again: no answer since", "stop", "web")
	refuses("has not stopped within 3s", "stop", "web", "--timeout", "3s")
	if out, errOut, code := a.CLI("stop", "web", "--wait=false"); code != 0 ||
		!strings.Contains(out, "stops when the runtime answers again") {
		t.Errorf("berth stop --wait=false: code %d, %q, %q", code, out, errOut)
	}
	thaw()
	if out, errOut, code := a.CLI("stop", "web", "--timeout", "60s"); code != 0 || !strings.Contains(out, "is stopped") {
		t.Errorf("berth stop with a runtime that answers: code %d, %q, %q", code, out, errOut)
	}
	if after := running(podOf(t, a, "steady")); after != before {
		t.Errorf("the pod whose restart was not recorded was %s and is %s", before, after)
	}
	if out, errOut, code := a.CLI("start", "web"); code != 0 {
		t.Errorf("berth start: code %d, %q, %q", code, out, errOut)
	}
	a.WaitReady(t, "web")
	removed(t, e, a, "web")
	removed(t, e, a, "steady")
	nothingLeft(t, e.Leaks)
}
