package stats

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/cgroups"
)

// counted returns what the kernel's files of a pod's cgroup say.
func counted(t *testing.T, path string) map[string]uint64 {
	t.Helper()
	out := map[string]uint64{}
	for _, file := range []string{"memory/memory.usage_in_bytes", "cpuacct/cpuacct.usage", "pids/pids.current"} {
		controller, name, _ := strings.Cut(file, "/")
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, path, name))
		if err != nil {
			t.Fatal(err)
		}
		if out[name], err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestSummaryAgreesWithCgroups compares the summary with the files of the kernel, which say the
// same before the summary and after it.
func TestSummaryAgreesWithCgroups(t *testing.T) {
	switch {
	case os.Geteuid() != 0:
		t.Skip("needs root: makes cgroups on this host")
	case cgroups.HostVersion() == cgroups.V2:
		t.Skip("reads the files of cgroup v1")
	}
	c, paths := crowd(t, 1)
	var before, after map[string]uint64
	var summary *statsapi.Summary
	for before == nil || !maps.Equal(before, after) {
		before = counted(t, paths[0])
		summary = c.Summary(t.Context(), false)
		after = counted(t, paths[0])
	}
	if len(summary.Pods) != 1 {
		t.Fatalf("%d pods", len(summary.Pods))
	}
	p := &summary.Pods[0]
	got := map[string]uint64{
		"memory.usage_in_bytes": *p.Memory.UsageBytes, "cpuacct.usage": *p.CPU.UsageCoreNanoSeconds,
		"pids.current": *p.ProcessStats.ProcessCount,
	}
	if !maps.Equal(got, after) || after["memory.usage_in_bytes"] == 0 {
		t.Errorf("the summary says %v, the kernel %v", got, after)
	}
}
