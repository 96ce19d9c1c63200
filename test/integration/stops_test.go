//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// TestStopsSurviveKills kills the agent while a pod with a sidecar ends. Hooks that have run do not
// run again, the order stays the same, and the agent starts nothing.
func TestStopsSurviveKills(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	dir := t.TempDir()
	notes := func() []string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, "notes"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Fields(string(data))
	}
	container := func(name, more string) string {
		return fmt.Sprintf(`
  - name: %s
    image: berth.local/busybox:v1
    command: [sh, -c, 'trap "echo %[1]s-signal >> /notes/notes; sleep 4; exit 0" TERM; echo %[1]s-starts >> /notes/notes; while true; do sleep 0.1; done']
    lifecycle: {preStop: {exec: {command: [sh, -c, 'echo %[1]s-hook >> /notes/notes']}}}
    volumeMounts: [{name: notes, mountPath: /notes}]%s`, name, more)
	}
	put(t, a, "ends", "terminationGracePeriodSeconds: 30\nvolumes: [{name: notes, hostPath: {path: "+dir+"}}]\n"+
		"initContainers:"+container("side", "\n    restartPolicy: Always")+"\ncontainers:"+container("app", ""))
	a.WaitReady(t, "ends")
	env.Eventually(t, "both containers to be ready for their signals", func() error {
		if got := notes(); len(got) < 2 {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
	record := filepath.Join(a.RootDir, "berth", "pods", string(podOf(t, a, "ends").UID)+".json")
	a.RemoveManifest(t, "ends.yaml")
	env.Eventually(t, "the app to get its signal, and the end of both hooks to be on record", func() error {
		// a hook that runs, or has just ended, when the agent is killed runs again
		text, err := os.ReadFile(record)
		if got := notes(); err != nil || len(got) < 5 || strings.Count(string(text), `"hooked":true`) < 2 {
			return fmt.Errorf("%q, %w, %s", got, err, text)
		}
		return nil
	})
	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, e.Leaks) // not WaitGone: an agent that has just started lists no pods
	var once []string
	for _, n := range notes() { // an agent that continues a stop sends the signal again
		if !strings.HasSuffix(n, "-signal") || !slices.Contains(once, n) {
			once = append(once, n)
		}
	}
	// The hooks start together. The machine decides how soon the sidecar's hook has written its
	// line.
	got := strings.Join(once, " ")
	if !slices.Contains([]string{
		"side-starts app-starts side-hook app-hook app-signal side-signal",
		"side-starts app-starts app-hook side-hook app-signal side-signal",
		"side-starts app-starts app-hook app-signal side-hook side-signal",
	}, got) {
		t.Errorf("what happened: %s", got)
	}
}
