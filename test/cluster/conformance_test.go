//go:build conformance

package cluster

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

var (
	focus = flag.String("focus", `\[NodeConformance\]`, "which of upstream's tests are run, as ginkgo has it")
	skip  = flag.String("skip", `\[Slow\]|\[Flaky\]|\[LinuxOnly\] .*Windows|\[Disruptive\]|\[Serial\]`, "which are not")
	nodes = flag.String("procs", "6", "how many run at once")
)

// TestConformance runs Kubernetes' own end-to-end tests of a node, those of its module that test/upstream pins, against berth. Images that are pulled from the internet are
// made here: upstream's programs on busybox.
func TestConformance(t *testing.T) {
	c := Start(t, Options{})
	bin := filepath.Join(c.Checkout, ".cache", "bin", "conformance")
	archives, err := images.Upstream(t.Context(), c.Checkout, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, archive := range archives {
		if err := c.Import(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
	}
	a := c.StartNode(t, env.AgentOptions{Kubelet: `{clusterDNS: ["10.96.0.10"]}`}) // which nobody answers at
	c.WaitNodeReady(t)
	c.StartProxy(t)
	skipped := *skip
	if err := c.In(exec.CommandContext(t.Context(), "ip", "link", "add", "dummy0", "type", "dummy").Run); err != nil {
		t.Logf("PrivilegedPod is left out: it makes a dummy interface, and this kernel has none: %v", err)
		skipped += "|PrivilegedPod"
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	report := filepath.Join(c.Checkout, ".cache", "conformance")
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "ginkgo"), "--procs", *nodes, "--focus", *focus, "--skip", skipped, "--no-color", "--succinct",
		"--keep-going", "--json-report", "report.json", "--output-dir", report, filepath.Join(bin, "e2e.test"), "--",
		"--kubeconfig", c.Admin, "--provider", "skeleton", "--num-nodes", "1", "--report-dir", report, "--allowed-not-ready-nodes", "0",
		"--container-runtime-endpoint", c.Endpoint, "--dump-logs-on-failure=false", "--kubectl-path", c.programs["kubectl"])
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.Folder}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err = c.In(cmd.Start); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Errorf("upstream's tests: %v", err)
	}
	if !a.Running() {
		t.Error("the agent has ended")
	}
}
