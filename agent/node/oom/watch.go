package oom

import (
	"context"
	"fmt"
	"log/slog"

	v1 "k8s.io/api/core/v1"
)

// reasonSystemOOM is the reason of the node's event for a process that the kernel killed because
// the node was out of memory.
const reasonSystemOOM = "SystemOOM"

// Events records events about the node; *events.Recorder does.
type Events interface {
	Node(kind, reason, message string)
}

// Report records each victim as an event of the node and in the log, until ctx ends. path is the
// kernel's log; empty means that nothing is watched. If the log cannot be read, Report logs that
// and returns: the agent goes on without it.
func Report(ctx context.Context, path string, events Events, log *slog.Logger) {
	if path == "" {
		return
	}
	err := Watch(ctx, path, func(v Victim) {
		log.Warn("the node was out of memory", "process", v.Process, "pid", v.PID, "cgroup", v.Cgroup)
		events.Node(v1.EventTypeWarning, reasonSystemOOM,
			fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", v.Process, v.PID))
	})
	if err != nil {
		log.Warn("the kernel does not say when the node is out of memory", "err", err)
	}
}
