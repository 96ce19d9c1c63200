package env

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/test/images"
)

const (
	// firstAgent is the name of an agent that has no name in its options.
	firstAgent = "a"
	// NodeName is the agents' node name. A static pod P is called P-node.
	NodeName = "node"

	agentConfigFile = "berth.yaml"
	agentLog        = "agent.log"
)

// dirs are the folders of one agent. No two agents share one.
type dirs struct {
	home, root, manifests, logs, links, images string
	// cgroup is the agent's cgroup below the environment's, or empty for the environment's own.
	cgroup string
}

func agentDirs(dir, name string) dirs {
	home := filepath.Join(dir, name)
	d := dirs{
		home:      home,
		root:      filepath.Join(home, "root"),
		manifests: filepath.Join(home, "manifests"),
		logs:      filepath.Join(home, "pods"),
		links:     filepath.Join(home, "containers"),
		images:    filepath.Join(home, "images"),
	}
	if name != firstAgent {
		d.cgroup = name
	}
	return d
}

// socket is the agent's local API.
func (d dirs) socket() string { return filepath.Join(d.home, "b.sock") }

// criSocket is where a native agent serves the CRI.
func (d dirs) criSocket() string { return filepath.Join(d.home, "cri.sock") }

// nativeNamespace is the containerd namespace of an agent's native runtime.
func nativeNamespace(agent string) string { return "berth-" + agent }

// writeConfig writes the agent's config file: a stock KubeletConfiguration and a
// BerthConfiguration, each with the changes of the options.
func (e *Env) writeConfig(a *Agent) error {
	d := agentDirs(e.Dir, a.name)
	kubelet := map[string]any{
		"apiVersion":               "kubelet.config.k8s.io/v1beta1",
		"kind":                     "KubeletConfiguration",
		"staticPodPath":            d.manifests,
		"podLogsDir":               d.logs,
		"containerRuntimeEndpoint": e.Endpoint,
		"cgroupRoot":               path.Join(e.CgroupRoot, d.cgroup),
		"cgroupDriver":             "cgroupfs",
		"enableServer":             false,
		"healthzPort":              0,
		"failSwapOn":               false,
		"failCgroupV1":             false,
		// Tests may not lower an OOM score, as the defaults would.
		"oomScoreAdj": 0,
		// How full this machine's disk is must not decide which images a test has.
		"imageGCHighThresholdPercent": 100,
		// The machine's firewall is not the tests'.
		"makeIPTablesUtilChains": false,
		// What the machine has left is no matter, unless a test says so.
		"evictionHard": map[string]any{},
	}
	berth := map[string]any{
		"apiVersion":       "berth.dev/v1alpha1",
		"kind":             "BerthConfiguration",
		"socket":           d.socket(),
		"runtime":          "remote",
		"imagesDir":        d.images,
		"containerLogsDir": d.links,
		"cni":              map[string]any{"confDir": e.CNIConfDir, "binDirs": e.CNIBinDirs},
	}
	if a.native || a.moved {
		e.addNative(berth, d, a.name)
	}
	if a.native {
		berth["runtime"] = "native"
	}
	var text []byte
	for _, doc := range []struct {
		base  map[string]any
		extra string
	}{{kubelet, a.opts.Kubelet}, {berth, a.opts.Berth}} {
		var extra map[string]any
		if err := yaml.Unmarshal([]byte(doc.extra), &extra); err != nil {
			return fmt.Errorf("read the extra %s: %w", doc.base["kind"], err)
		}
		b, err := yaml.Marshal(merge(doc.base, extra))
		if err != nil {
			return fmt.Errorf("write the agent's config: %w", err)
		}
		text = append(append(text, "---\n"...), b...)
	}
	if err := os.WriteFile(filepath.Join(d.home, agentConfigFile), text, 0o600); err != nil {
		return fmt.Errorf("write the agent's config: %w", err)
	}
	return nil
}

// addNative gives a BerthConfiguration the settings of the native runtime, with the handlers of
// containerd's own config.
func (e *Env) addNative(berth map[string]any, d dirs, agent string) {
	runtimes := map[string]any{
		"runc":        map[string]any{"root": e.runcRoot()},
		SecondHandler: map[string]any{"binary": "runc", "root": e.runcRoot()},
	}
	if e.binaries.newer != "" {
		runtimes[NewerHandler] = map[string]any{"binary": e.binaries.newer, "root": e.runcRoot()}
	}
	berth["criSocket"] = d.criSocket()
	berth["sandbox"] = map[string]any{"image": images.Pause}
	berth["containerd"] = map[string]any{
		"namespace": nativeNamespace(agent), "registryConfigDir": e.registryConfigs(), "runtimes": runtimes,
	}
}

// merge merges extra into base. Objects are merged, null removes a field, and every other value
// replaces the old one.
func merge(base, extra map[string]any) map[string]any {
	out := maps.Clone(base)
	for k, v := range extra {
		below, isObject := v.(map[string]any)
		old, wasObject := out[k].(map[string]any)
		switch {
		case v == nil:
			delete(out, k)
		case isObject && wasObject:
			out[k] = merge(old, below)
		default:
			out[k] = v
		}
	}
	return out
}
