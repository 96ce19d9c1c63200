package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

// waitForOther lets two goroutines wait for each other: one of them blocks. Both have gone on when
// it returns, because the one that was blocked is in the profile only then.
func waitForOther() {
	meet, over := make(chan struct{}), make(chan struct{})
	go func() {
		meet <- struct{}{}
		close(over)
	}()
	<-meet
	<-over
}

// waits counts how often waitForOther, or what it starts, is in the profile of what blocks.
func waits() (count int64) {
	records := make([]runtime.BlockProfileRecord, 1<<16)
	n, _ := runtime.BlockProfile(records)
	for _, r := range records[:n] {
		frames := runtime.CallersFrames(r.Stack())
		for frame, more := frames.Next(); ; frame, more = frames.Next() {
			if strings.Contains(frame.Function, "waitForOther") {
				count += r.Count
				break
			}
			if !more {
				break
			}
		}
	}
	return count
}

// With enableContentionProfiling, the profile of what blocks has each event, and otherwise none.
func TestContentionProfiling(t *testing.T) {
	defer runtime.SetBlockProfileRate(0)
	for _, enabled := range []bool{false, true} {
		cfg, _, err := configs.Load(configs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cfg.RootDir = t.TempDir()
		file := filepath.Join(cfg.RootDir, "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg.Lock.File = filepath.Join(file, "lock") // which cannot be: the agent goes no further
		cfg.HostnameOverride = "node"
		cfg.Kubelet.EnableContentionProfiling = enabled
		// nothing of this machine is changed, nor anything of this process but the profile
		cfg.Kubelet.ProtectKernelDefaults, cfg.Kubelet.OOMScoreAdj, cfg.Kubelet.MaxOpenFiles = true, nil, 0
		if _, closeAll, err := Assemble(t.Context(), cfg, "test", slog.New(slog.DiscardHandler)); err == nil {
			closeAll()
			t.Fatal("the agent has a lock below a file")
		}
		before := waits()
		waitForOther()
		if after := waits(); (after > before) != enabled {
			t.Errorf("enabled %t: the profile has %d waits, and before %d", enabled, after, before)
		}
	}
}
