package oom

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/telemetry/events"
)

func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	kernel, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	recorder, log := events.New("n"), slog.New(slog.DiscardHandler)
	_, following, stop := recorder.Subscribe()
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); Report(ctx, path, recorder, log) }()
	const record = "6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/" +
		",mems_allowed=0,global_oom,task_memcg=/x,task=java,pid=7,uid=0\n"
	if _, err := kernel.WriteString(record); err != nil {
		t.Fatal(err)
	}
	if e := <-following; e.Type != v1.EventTypeWarning || e.Reason != "SystemOOM" || e.InvolvedObject.Kind != "Node" ||
		e.Message != "System OOM encountered, victim process: java, pid: 7" {
		t.Errorf("event %+v", e)
	}
	cancel()
	<-done
	for _, none := range []string{"", filepath.Join(t.TempDir(), "none")} {
		Report(t.Context(), none, recorder, log)
	}
}
