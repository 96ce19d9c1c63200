package cluster

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/env"
)

// kubeletLinks is where a kubelet makes links to its containers' logs. It has no setting for this.
const kubeletLinks = "/var/log/containers"

// kubeletConfig is the file in an agent's folder that has the config of a kubelet in its place.
const kubeletConfig = "kubelet.yaml"

// isKubelet reports whether a document of an agent's config is the kubelet's.
func isKubelet(doc []byte) bool { return bytes.Contains(doc, []byte("kind: KubeletConfiguration\n")) }

// KubeletOptions adds to an agent's options what a kubelet needs to run on a test's machine with
// the same config. A nearly full disk must not make it evict the test's pods or delete its images,
// and a volume's size may not be minutes old.
func KubeletOptions(e *env.Env) string {
	return kubeletOptions(e) + "evictionHard: {memory.available: 1Mi}\n"
}

// kubeletOptions does that without thresholds.
func kubeletOptions(e *env.Env) string {
	return "makeIPTablesUtilChains: false\nvolumePluginDir: " + filepath.Join(e.Dir, "volume-plugins") +
		"\nimageGCHighThresholdPercent: 100\nvolumeStatsAggPeriod: 5s\n"
}

// NewKubelet prepares a kubelet that replaces an agent that does not run. It has the agent's
// KubeletConfiguration, root directory, static pods and flags, and a certificate of its own, by
// which the audit log tells their requests apart. The agent's options must include
// [KubeletOptions]. At the test's end the kubelet is stopped, and its links to logs are removed.
func (c *Cluster) NewKubelet(t testing.TB, a *env.Agent) *env.Program {
	t.Helper()
	text, err := os.ReadFile(a.Config)
	if err != nil {
		t.Fatalf("read the agent's config: %v", err)
	}
	var own []byte
	for doc := range bytes.SplitSeq(text, []byte("---\n")) {
		if isKubelet(doc) {
			own = doc
		}
	}
	config := filepath.Join(a.Home, kubeletConfig)
	if err := os.WriteFile(config, own, 0o600); err != nil {
		t.Fatalf("write the kubelet's config: %v", err)
	}
	if err := c.MakeCgroupRoot(); err != nil {
		t.Fatal(err)
	}
	kubeconfig := c.Kubeconfig(t, "kubelet", nodeSubject(env.NodeName))
	c.notTheAgents = append(c.notTheAgents, with(t, filepath.Join(c.Folder, "client-kubelet.crt")))
	k := c.program("kubelet",
		"--config", config, "--root-dir", a.RootDir, "--cert-dir", filepath.Join(a.RootDir, "pki"),
		"--kubeconfig", kubeconfig, "--hostname-override", env.NodeName, "--node-ip", env.HostIP,
	)
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Errorf("stop the kubelet: %v", err)
		}
		if err := removeLinks(a.LogsDir); err != nil {
			t.Error(err)
		}
	})
	return k
}

// removeLinks removes a kubelet's links to logs below a folder.
func removeLinks(logs string) error {
	links, _ := filepath.Glob(filepath.Join(kubeletLinks, "*.log"))
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(to, logs+"/") {
			continue
		}
		if err := os.Remove(link); err != nil {
			return fmt.Errorf("remove a kubelet's link: %w", err)
		}
	}
	return nil
}
