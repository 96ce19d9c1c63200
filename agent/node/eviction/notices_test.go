package eviction

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/berthd/berth/internal/notify"
)

// The kernel's notices are watched until the end, and a notice wakes the watcher. More processes
// than processors wait for a processor, as tasks without memory wait for memory.
func TestKernelNotices(t *testing.T) {
	const file = "/proc/pressure/cpu"
	if _, err := os.Stat(file); err != nil {
		t.Skip("this kernel has no pressure information")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	noticed, done := notify.New(), make(chan error, 1)
	go func() { done <- watch(ctx, file, noticed.Notify) }()
	for range runtime.NumCPU() + 1 {
		busy := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = busy.Wait() }() // it is killed
		defer cancel()
	}
	select {
	case <-noticed:
	case err := <-done:
		t.Fatalf("the watch has ended: %v", err)
	case <-time.After(time.Minute):
		t.Error("no notice though processes wait")
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("at the end: %v", err)
	}
}

// A kernel without notices is no reason to fail: the manager looks periodically.
func TestNoKernelNotices(t *testing.T) {
	if err := watch(t.Context(), filepath.Join(t.TempDir(), "none"), nil); err == nil {
		t.Error("a missing file gives notices")
	}
	cfg := memoryAt("100")
	cfg.KernelNotices = filepath.Join(t.TempDir(), "none")
	run(t, cfg, func(n *node, _ *Pressure, _ notify.Signal) {
		n.set(func() { n.memory = 10 })
		time.Sleep(10 * time.Second)
		n.want("a look without a notice", "10s: pressure [MemoryPressure]",
			"10s: Warning EvictionThresholdMet: Attempting to reclaim memory")
	})
}
