package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/logs"
	"github.com/berthd/berth/configs"
)

// configOf reads a config file of two documents.
func configOf(t *testing.T, kubelet, berth string) *configs.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + kubelet +
		"---\napiVersion: berth.dev/v1alpha1\nkind: BerthConfiguration\n" + berth
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// What can be reloaded takes effect at once. The rest is named.
func TestReload(t *testing.T) {
	before := configOf(t, "", "")
	after := configOf(t, `registryPullQPS: 9
registryBurst: 19
serializeImagePulls: true
maxParallelImagePulls: 1
containerLogMaxSize: 1Mi
containerLogMaxFiles: 9
containerLogMaxWorkers: 2
containerLogMonitorInterval: 3s
maxPods: 7
`, `podSecurity: restricted
logs: {maxContainerSize: 9Mi, maxNodeSize: 1Gi}
maxParallelPodStarts: 3
`)
	for name, tc := range map[string]struct {
		rotates bool
		later   []string
	}{
		"with rotation": {true, []string{"berth:maxParallelPodStarts", "maxPods"}},
		"without": {false, []string{
			"berth:logs.maxContainerSize", "berth:logs.maxNodeSize", "berth:maxParallelPodStarts",
			"containerLogMaxFiles", "containerLogMaxSize",
			"containerLogMaxWorkers", "containerLogMonitorInterval", "maxPods",
		}},
	} {
		n, err := node.New(before, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		a := &Agent{
			cfg:   before,
			deps:  Deps{Node: n},
			parts: &parts{images: images.New(images.Config{}, images.Deps{}), logs: logs.Unmanaged{}},
		}
		if tc.rotates {
			a.logs = logs.New(logs.Config{}, logs.Deps{})
		}
		now, later := a.Reload(before, after, configs.Changed(before, after))
		if !slices.Equal(later, tc.later) {
			t.Errorf("%s: %q take a restart, want %q", name, later, tc.later)
		}
		if left := configs.Changed(now, after); !slices.Equal(left, tc.later) {
			t.Errorf("%s: the config that counts now differs in %q", name, left)
		}
		if got := n.Admission().PodSecurity; got != "restricted" {
			t.Errorf("%s: pods are held to %q", name, got)
		}
		if before.Kubelet.RegistryBurst == 19 || before.Berth.PodSecurity == "restricted" {
			t.Errorf("%s: the config that the agent has was written to", name)
		}
	}
}
