//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
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
	// The kernel lets a process that waits for such a server go only when the server is gone.
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
	env.Eventually(t, "the agent's exit", func() error {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err == nil && !strings.Contains(string(status), "State:\tZ") {
			err = fmt.Errorf("%s", status)
		}
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return err
	})
	server.Close()
	<-a.Done()
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
