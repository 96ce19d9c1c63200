//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
)

// TestSilentFileSystem has pods whose volumes are on a file system whose server does not answer, by
// a subPath and by the type of a hostPath. Their syncs do not wait for it: commands that need a
// pod's sync are answered, and the agent ends when it is told to.
func TestSilentFileSystem(t *testing.T) {
	e := env.Containerd(t, env.Options{})
	silent := t.TempDir()
	server := env.MountSilent(t, silent)
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	server.FallSilent()
	mounts := map[string]string{
		"by-subpath": "volumeMounts: [{name: v, mountPath: /v, subPath: a}]",
		"by-type":    "volumeMounts: [{name: v, mountPath: /v}]",
	}
	types := map[string]string{"by-subpath": "", "by-type": ", type: DirectoryOrCreate"}
	for name, mount := range mounts {
		put(t, a, name, "terminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main", mount)+
			"volumes: [{name: v, hostPath: {path: "+silent+types[name]+"}}]\n")
	}
	put(t, a, "beside", sleeper)
	a.WaitReady(t, "beside")
	for name := range mounts {
		env.Eventually(t, name+" to wait for the file system", func() error {
			if text := fmt.Sprintf("%+v", podOf(t, a, name).Status); !strings.Contains(text, "does not answer") {
				return errors.New(text)
			}
			return nil
		})
	}
	// The kernel lets a thread that waits for such a server go only when the server is gone: of an
	// agent that has ended, those are left.
	pid := a.PID()
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent to be done with all but the file system", func() error {
		log, err := os.ReadFile(a.Log)
		if err == nil && !strings.Contains(string(log), "the work for some pods does not end") {
			err = errors.New("it is not done")
		}
		return err
	})
	env.Eventually(t, "the agent's exit", func() error { return onlyBlocked(pid) })
	server.Close()
	a.WaitEnded(t)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	for _, name := range []string{"by-subpath", "by-type", "beside"} {
		a.RemoveManifest(t, name+".yaml")
	}
	a.WaitGone(t, "by-subpath", "by-type", "beside")
	nothingLeft(t, e.Leaks)
}

// TestPodOfSilentFileSystemGoes removes a pod that never started, because its subPath is on a file
// system whose server does not answer, and one whose container's volume does not. They go before
// the server answers, and nothing of theirs is mounted when it does.
func TestPodOfSilentFileSystemGoes(t *testing.T) {
	e := env.Containerd(t, env.Options{})
	silent := t.TempDir()
	server := env.MountSilent(t, silent)
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	server.FallSilent()
	mounts := map[string]string{
		"by-subpath": "volumeMounts: [{name: v, mountPath: /v, subPath: a}]",
		"by-mount":   "volumeMounts: [{name: v, mountPath: /v}]",
	}
	for name, mount := range mounts {
		put(t, a, name, "terminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main", mount)+
			"volumes: [{name: v, hostPath: {path: "+silent+"}}]\n")
		env.Eventually(t, name+" to wait for the file system", func() error {
			if text := fmt.Sprintf("%+v", podOf(t, a, name).Status); !strings.Contains(text, "does not answer") {
				return errors.New(text)
			}
			return nil
		})
	}
	for name := range mounts {
		a.RemoveManifest(t, name+".yaml")
	}
	a.WaitGone(t, "by-subpath", "by-mount")
	server.Close()
	nothingLeft(t, e.Leaks)
}

// onlyBlocked returns an error while a thread of the process runs or sleeps. The thread that was
// first stays as a zombie until all others are gone, or is itself one that the kernel holds.
func onlyBlocked(pid int) error {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, task := range tasks {
		stat, err := os.ReadFile(task)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		} else if err != nil {
			return err
		}
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "D") && !strings.HasPrefix(state, "Z") {
			return fmt.Errorf("a thread is in state %.1s", state)
		}
	}
	return nil
}
