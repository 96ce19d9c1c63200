//go:build integration

package integration

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// TestWhyOfCrashes has one container end again and again, and another that can never start. Why
// names both, the one that nobody can wait for first, with the last exit, the last lines of the
// log, and the warning about the manifest. The agent's log has each end.
func TestWhyOfCrashes(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	put(t, a, "sick", `
containers:
  - name: crash
    image: berth.local/busybox:v1
    comand: [ignored]
    command: [sh, -c, "echo first; echo no config found; exit 3"]
  - name: never
    image: "NOT A NAME"
`)
	env.Eventually(t, "why to say everything", func() error {
		out, errOut, code := a.CLI("why", "sick")
		never, crash := strings.Index(out, "container never: InvalidImageName"), strings.Index(out, "container crash: ")
		if code != 0 || never < 0 || crash < never {
			return fmt.Errorf("code %d, %s%s", code, out, errOut)
		}
		for _, want := range []string{
			"it last ended with exit code 3 (Error)", "Warning: ", "comand",
			"The last lines of container crash:\n  first\n  no config found\n",
		} {
			if !strings.Contains(out, want) {
				return fmt.Errorf("no %q in %s", want, out)
			}
		}
		return nil
	})
	log, err := os.ReadFile(a.Log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "container ended") || !strings.Contains(string(log), "exitCode=3") {
		t.Errorf("the log does not have the end: %s", a.LogTail())
	}
	removed(t, e, a, "sick")
}
