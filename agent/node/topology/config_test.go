package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

// machine makes a kernel's directory.
func machine(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func config(policy, scope string, options map[string]string) *configs.Config {
	cfg := &configs.Config{}
	cfg.Kubelet.TopologyManagerPolicy, cfg.Kubelet.TopologyManagerScope = policy, scope
	cfg.Kubelet.TopologyManagerPolicyOptions = options
	return cfg
}

func TestConfig(t *testing.T) {
	two := machine(t, map[string]string{
		"node/online": "0,2", "node/node0/distance": "10 21", "node/node2/distance": "21 10",
	})
	p, err := ConfigFrom(config(SingleNUMANode, "pod", map[string]string{"prefer-closest-numa-nodes": "true"}), two)
	if err != nil || p.Nodes != MaskOf(0, 2) || !p.ByPod || !p.Guarantees() || !p.Aligns() || p.Scope() != "pod" ||
		fmt.Sprint(p.Distances) != "map[0:[10 0 21] 2:[21 0 10]]" {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = ConfigFrom(config(BestEffort, "container", nil), t.TempDir())
	if err != nil || p.Nodes != MaskOf(0) || p.ByPod || p.Distances != nil || p.Scope() != "container" {
		t.Errorf("a kernel without NUMA: %+v, %v", p, err)
	}
	if p, err = ConfigFrom(config(None, "pod", map[string]string{"odd": "x"}), "/nowhere"); err != nil || p.Aligns() {
		t.Errorf("%+v, %v", p, err)
	}
	ten := machine(t, map[string]string{"node/online": "0-9"})
	if _, err = ConfigFrom(config(Restricted, "", map[string]string{"max-allowable-numa-nodes": "10"}), ten); err != nil {
		t.Error(err)
	}
}

func TestOddConfig(t *testing.T) {
	for want, c := range map[string]struct {
		files   map[string]string
		options map[string]string
	}{
		"more than 8 NUMA nodes; this one has 10": {files: map[string]string{"node/online": "0-9"}},
		"reading the machine's NUMA nodes":        {files: map[string]string{"node/online": "x"}},
		"there is no such option":                 {options: map[string]string{"odd": "x"}},
		"7 must be at least 8":                    {options: map[string]string{"max-allowable-numa-nodes": "7"}},
		"max-allowable-numa-nodes: strconv":       {options: map[string]string{"max-allowable-numa-nodes": "x"}},
		"prefer-closest-numa-nodes: strconv":      {options: map[string]string{"prefer-closest-numa-nodes": "x"}},
		"how far the NUMA nodes are":              {options: map[string]string{"prefer-closest-numa-nodes": "1"}},
		"2 distances from NUMA node 0": {
			files:   map[string]string{"node/online": "0", "node/node0/distance": "10 20"},
			options: map[string]string{"prefer-closest-numa-nodes": "1"},
		},
		"how far NUMA node 0 is from 0": {
			files:   map[string]string{"node/online": "0", "node/node0/distance": "x"},
			options: map[string]string{"prefer-closest-numa-nodes": "1"},
		},
	} {
		_, err := ConfigFrom(config(Restricted, "container", c.options), machine(t, c.files))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
