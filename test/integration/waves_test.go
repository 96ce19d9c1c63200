//go:build integration

package integration

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/berthd/berth/test/env"
)

const (
	// wavesVariable is how many pods come and go; without it there are waveDefault.
	wavesVariable = "BERTH_TEST_WAVES_PODS"
	waveDefault   = 60
	// wave is how many pods come at once. It is below the 110 pods that a node may have.
	wave = 20
)

// wavePods are the kinds of pods in a wave: one that runs, with memory mounted and an init
// container; one that ends well; one whose container crashes and starts again.
var wavePods = []string{
	`
terminationGracePeriodSeconds: 5
initContainers: [{name: first, image: berth.local/busybox:v1, command: ["true"]}]
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    volumeMounts: [{name: memory, mountPath: /memory}]
volumes: [{name: memory, emptyDir: {medium: Memory}}]
`, `
restartPolicy: Never
containers: [{name: main, image: berth.local/busybox:v1, command: [echo, done]}]
`, `
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "[ -e /kept/it ] || { touch /kept/it; exit 1; }; trap exit TERM; sleep 3600 & wait"]
    volumeMounts: [{name: kept, mountPath: /kept}]
volumes: [{name: kept, emptyDir: {}}]
`,
}

// TestWaves has many pods come and go in waves, and then nothing of them is left: no sandbox,
// cgroup, mount, network namespace, address, shim, directory, log and record. The agent has no more
// goroutines and open files than after the first wave.
func TestWaves(t *testing.T) {
	t.Parallel()
	pods := waveDefault
	if text := os.Getenv(wavesVariable); text != "" {
		var err error
		if pods, err = strconv.Atoi(text); err != nil {
			t.Fatalf("$%s: %v", wavesVariable, err)
		}
	}
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	var goroutines, files int
	for first := 0; first < pods; first += wave {
		var names []string
		for i := first; i < min(first+wave, pods); i++ {
			names = append(names, fmt.Sprintf("wave-%d", i))
			put(t, a, names[len(names)-1], wavePods[i%len(wavePods)])
		}
		a.WaitReady(t, names...)
		for _, name := range names {
			a.RemoveManifest(t, name+".yaml")
		}
		a.WaitGone(t, names...)
		nothingLeft(t, func() []string { return leftOf(e, a) })
		if first == 0 {
			goroutines, files = settled(t, a)
		}
	}
	env.Eventually(t, "the agent to have no more than after the first wave", func() error {
		g, f, err := heldBy(t, a)
		if err == nil && (g > goroutines || f > files) {
			err = fmt.Errorf("%d goroutines and %d open files, %d and %d before", g, f, goroutines, files)
		}
		return err
	})
}

// leftOf returns the leaks of the environment, and the agent's records of pods.
func leftOf(e *env.Env, a *env.Agent) []string {
	records, err := filepath.Glob(filepath.Join(a.RootDir, "berth", "pods", "*"))
	if err != nil {
		return []string{err.Error()}
	}
	return append(e.Leaks(), records...)
}

var goroutineTotal = regexp.MustCompile(`goroutine profile: total (\d+)`)

// heldBy returns how many goroutines and open files the agent has.
func heldBy(t *testing.T, a *env.Agent) (goroutines, files int, err error) {
	t.Helper()
	resp, err := a.Get(t.Context(), "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, 0, err
	}
	m := goroutineTotal.FindSubmatch(text)
	if m == nil {
		return 0, 0, fmt.Errorf("the profile is %.200s", text)
	}
	goroutines, err = strconv.Atoi(string(m[1]))
	if err != nil {
		return 0, 0, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.PID()))
	return goroutines, len(open), err
}

// settled returns how many goroutines and open files the agent has once both stay the same.
func settled(t *testing.T, a *env.Agent) (goroutines, files int) {
	t.Helper()
	same := 0
	env.Eventually(t, "the agent to come to rest", func() error {
		g, f, err := heldBy(t, a)
		if err != nil {
			return err
		}
		if g != goroutines || f != files {
			goroutines, files, same = g, f, 0
		}
		if same++; same < 10 {
			return fmt.Errorf("%d goroutines and %d open files", g, f)
		}
		return nil
	})
	return goroutines, files
}
