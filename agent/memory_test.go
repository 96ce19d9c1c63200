package agent

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/events"
)

func TestWatchMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kmsg")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	kernel, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	a := &Agent{deps: Deps{KernelLog: path}, log: slog.New(slog.DiscardHandler), events: events.New("n")}
	_, following, stop := a.events.Subscribe()
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.watchMemory(ctx) }()
	const record = "6,1,2,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/x,task=java,pid=7,uid=0\n"
	if _, err := kernel.WriteString(record); err != nil {
		t.Fatal(err)
	}
	if e := <-following; e.Type != v1.EventTypeWarning || e.Reason != "SystemOOM" || e.InvolvedObject.Kind != "Node" || e.Message != "System OOM encountered, victim process: java, pid: 7" {
		t.Errorf("event %+v", e)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, none := range []string{"", filepath.Join(t.TempDir(), "none")} {
		a.deps.KernelLog = none
		if err := a.watchMemory(t.Context()); err != nil {
			t.Errorf("with the log %q: %v", none, err)
		}
	}
}
