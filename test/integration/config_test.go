//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
)

// TestConfigNotInForce reloads configs that are refused, that take a restart, and that are in
// force. The status and the events of the node say which it is, and a restart takes a pending one
// over.
func TestConfigNotInForce(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "maxPods: 50"})
	a.WaitUp(t)
	good, err := os.ReadFile(a.Config)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(maxPods string) {
		t.Helper()
		text := bytes.Replace(good, []byte("maxPods: 50"), []byte("maxPods: "+maxPods), 1)
		if err := os.WriteFile(a.Config, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Kill(a.PID(), unix.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	// status prints what needs a person, with an exit code of its own, or that nothing does.
	status := func(texts ...string) {
		t.Helper()
		env.Eventually(t, fmt.Sprintf("the status to say %q", texts), func() error {
			out, errOut, _ := a.CLI("status")
			for _, text := range texts {
				if !strings.Contains(out, text) {
					return errors.New(out + errOut)
				}
			}
			return nil
		})
	}
	status("Nothing needs a person")
	reload("many")
	status("the config on the disk is refused", a.Config, "would not start again")
	waitEvent(t, a, "ConfigRefused", "maxPods")
	reload("50")
	status("Nothing needs a person")
	waitEvent(t, a, "ConfigInForce", "")
	reload("40")
	status("settings of the config on the disk are not in force", "maxPods ("+a.Config+":", "systemctl restart berth")
	waitEvent(t, a, "ConfigPending", "maxPods")
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	status("Nothing needs a person")
}
