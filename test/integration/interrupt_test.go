//go:build integration

package integration

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestRunInterrupted interrupts berth run at later and later moments of its start. The command
// leaves nothing of its pod, however much of the pod it had made.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	heed(t, unix.SIGINT) // which a shell has this process ignore in the background
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

// runOne is a "berth run" of a pod that prints that it is up and then waits.
type runOne struct {
	*exec.Cmd
	root, config, binary string
	out                  *os.File
	errOut               bytes.Buffer
}

// startRun starts a run and waits until its pod has printed something.
func startRun(t *testing.T, e *env.Env, a *env.Agent, name string) *runOne {
	t.Helper()
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	spec := "{terminationGracePeriodSeconds: 1, containers: [{name: main, image: berth.local/busybox:v1, " +
		"command: [sh, -c, 'while true; do echo up; sleep 0.2; done']}]}"
	if err := os.WriteFile(pod, []byte("{apiVersion: v1, kind: Pod, metadata: {name: "+name+"}, spec: "+spec+"}"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if e.Native {
		haveImage(t, e, a, images.Busybox)
	}
	program, err := env.Binary(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	r := &runOne{root: filepath.Join(e.Dir, "run-"+name), config: a.Config, binary: program}
	r.Cmd = exec.CommandContext(t.Context(), r.binary, "run", pod, "--config", r.config, "--root-dir", r.root)
	r.Stderr = &r.errOut
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.out, r.Stdout = out, in
	t.Cleanup(func() { _ = out.Close() })
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	if n, err := out.Read(make([]byte, 10)); err != nil {
		_ = r.Wait()
		t.Fatalf("the pod prints nothing: %d, %v: %s", n, err, r.errOut.String())
	}
	return r
}

// haveImage puts an image where runs with an agent's config import images from: natively, each run
// has images of its own.
func haveImage(t *testing.T, e *env.Env, a *env.Agent, image string) {
	t.Helper()
	data, err := os.ReadFile(archiveOf(t, e, image))
	if err == nil {
		err = os.WriteFile(filepath.Join(a.Home, "images", "image.tar"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// berth runs another verb, and returns all that it prints.
func (r *runOne) berth(t *testing.T, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), r.binary, args...)
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}

// TestRunEndsWithItsTerminal checks that a run cleans up when its terminal is closed, when it is
// asked to end, and when nobody reads its output any more.
func TestRunEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	heed(t, unix.SIGHUP) // which nohup(1) has this process ignore
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(), env.AgentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	signals := func(list ...os.Signal) func(*runOne) {
		return func(r *runOne) {
			for _, s := range list {
				_ = r.Process.Signal(s)
			}
		}
	}
	for name, end := range map[string]func(*runOne){
		"hangup":  signals(unix.SIGHUP),
		"hangups": signals(unix.SIGHUP, unix.SIGHUP, unix.SIGHUP),
		"term":    signals(unix.SIGTERM),
		"pipe":    func(r *runOne) { _ = r.out.Close() },
	} {
		r := startRun(t, e, a, name)
		end(r)
		if name != "pipe" {
			go func() { _, _ = io.Copy(io.Discard, r.out) }()
		}
		// Output that nobody reads is a failure.
		if err := r.Wait(); (err != nil) != (name == "pipe") {
			t.Errorf("%s: %v: %s", name, err, r.errOut.String())
		}
		if _, err := os.Stat(r.root); !os.IsNotExist(err) {
			t.Errorf("%s: the run leaves its folder (%v): %s", name, err, r.errOut.String())
		}
		nothingLeft(t, func() []string { return e.LeaksOf(name+"-", "berth-run") })
	}
}

// TestKilledRunIsCleanedUp checks that doctor finds what a killed run has left, and that "berth run
// --clean" removes it without an agent.
func TestKilledRunIsCleanedUp(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(), env.AgentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r := startRun(t, e, a, "killed")
	if out, code := r.berth(t, "run", "--clean", "--root-dir", r.root); code != 1 ||
		!strings.Contains(out, "the run in "+r.root+" goes on (process "+strconv.Itoa(r.Process.Pid)+")") {
		t.Errorf("a run that lives: code %d, %s", code, out)
	}
	_ = r.Process.Kill()
	_ = r.Wait()
	if out, _ := r.berth(t, "doctor", "--config", r.config); !strings.Contains(out, r.root) ||
		!strings.Contains(out, "berth run --clean") {
		t.Errorf("doctor does not find the killed run: %s", out)
	}
	if out, code := r.berth(t, "run", "--clean", "--root-dir", r.root); code != 0 ||
		!strings.Contains(out, "Removed what was left of the run in "+r.root) {
		t.Errorf("code %d, %s", code, out)
	}
	if _, err := os.Stat(r.root); !os.IsNotExist(err) {
		t.Errorf("the folder is left: %v", err)
	}
	nothingLeft(t, func() []string { return e.LeaksOf("killed-", "berth-run") })
	if out, _ := r.berth(t, "doctor", "--config", r.config); strings.Contains(out, r.root) {
		t.Errorf("doctor still finds the run: %s", out)
	}
}

// heed has processes that the test starts begin with a signal's default action. If this process
// ignores the signal, they would ignore it, too, until they have their own handler.
func heed(t *testing.T, s os.Signal) {
	t.Helper()
	if !signal.Ignored(s) {
		return
	}
	received := make(chan os.Signal, 1)
	signal.Notify(received, s)
	t.Cleanup(func() { signal.Stop(received) })
}
