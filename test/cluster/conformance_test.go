//go:build conformance

package cluster

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var (
	focus = flag.String("focus", "",
		"which of upstream's tests are run, as ginkgo has it, instead of those that each test here names")
	skip  = flag.String("skip", "", "which are not")
	procs = flag.String("procs", "4", "how many run at once")
)

// unfit are tests that need a quiet machine, a node of their own, or an hour.
const unfit = `\[Slow\]|\[Flaky\]|\[LinuxOnly\] .*Windows|\[Disruptive\]|\[Serial\]`

// TestConformance runs Kubernetes' own end-to-end tests against berth: all tests of a node, and
// those tests of a conformant cluster that one node can pass. The tests are from the module that
// test/upstream pins. Images that come from the internet are made here, with upstream's programs on
// busybox. There is no cluster DNS.
func TestConformance(t *testing.T) {
	c, a := startServer(t, `clusterDNS: ["10.96.0.10"]`) // nobody answers at this address
	c.StartProxy(t)
	skipped := []string{
		unfit,
		`\] DNS |ExternalName|session affinity|a functioning NodePort service|multiport endpoints from pods|a basic ` +
			`endpoint from pods|Guestbook|IssuerDiscovery`,
		"at least two untainted nodes",
		"CSIStorageCapacity", // only about the API server, which closes a watch
	}
	if err := c.In(exec.CommandContext(t.Context(), "ip", "link", "add", "dummy0", "type", "dummy").Run); err != nil {
		t.Logf("PrivilegedPod is left out: it makes a dummy interface, and this kernel has none: %v", err)
		skipped = append(skipped, "PrivilegedPod")
	}
	c.upstream(t, a, "e2e.test", `\[NodeConformance\]|\[Conformance\]`, skipped, "--kubeconfig", c.Admin, "--provider",
		"skeleton", "--num-nodes", "1", "--allowed-not-ready-nodes", "0")
}

// TestNodeConformance runs Kubernetes' own tests of a kubelet (test/e2e_node in its source) against
// berth, as far as several can run at once. [TestNodeSuites] runs the others.
func TestNodeConformance(t *testing.T) {
	server, flags := forNodeTests(t)
	c, a := startServer(t, nodeTestsConfig, server...)
	// Of the tests that are in both programs, e2e.test has them. Those of metrics and summaries
	// want what cgroup v1, and this kernel's accounting of block devices, do not tell.
	c.upstream(t, a, nodeTests,
		`Containers Lifecycle|DefaultProcMount|Deleted pods|Hostname of Pod|Volume Manager|MirrorPod|Mount `+
			`recursive|Pod SIGKILL|Pod conditions|`+
			`ResourceMetrics|Terminate Pods|Pod Host IPs|Pod IPs|ImageVolume \[F`, []string{unfit}, flags...)
}

// runner is an agent or a kubelet.
type runner interface{ Running() bool }

// upstream runs one of upstream's programs of tests. It runs the focused tests without the skipped
// ones, unless the flags select others.
func (c *Cluster) upstream(t *testing.T, agent runner, program, focused string, skipped []string, flags ...string) {
	t.Helper()
	if *focus != "" {
		focused = *focus
	}
	if *skip != "" {
		skipped = []string{*skip}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Minute)
	defer cancel()
	bin := filepath.Join(c.Checkout, ".cache", "bin", "conformance")
	report := filepath.Join(c.Checkout, ".cache", "conformance", os.Getenv(serverVariable),
		strings.TrimSuffix(program, ".test"))
	if err := os.MkdirAll(report, 0o755); err != nil {
		t.Fatal(err)
	}
	// A test of a kubelet writes the kubelet's config beside itself.
	linked := filepath.Join(c.Folder, program)
	if err := os.Symlink(filepath.Join(bin, program), linked); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "ginkgo"), append([]string{
		"--procs", *procs, "--focus", focused, "--skip", strings.Join(skipped, "|"), "--no-color", "--succinct",
		"--keep-going", "--timeout", "2h",
		"--json-report", "report.json", "--output-dir", report, linked, "--", "--report-dir",
		report,
		"--container-runtime-endpoint", c.Endpoint, "--dump-logs-on-failure=false", "--kubectl-path",
		c.programs["kubectl"],
	}, flags...)...)
	cmd.Env, cmd.Dir = []string{
		"PATH=" + c.managerFolder() + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.Folder,
	}, report
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err := c.In(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Errorf("upstream's tests: %v", err)
	}
	if !agent.Running() {
		t.Error("the agent has ended")
	}
}
