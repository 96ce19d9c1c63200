package agent

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/oom"
)

// reasonSystemOOM is the reason of the node's event about a process that the kernel ended because the node was out of memory.
const reasonSystemOOM = "SystemOOM"

// watchMemory tells of each time that the node was out of memory. Where the kernel's log cannot be read nobody can tell, which is no reason to do
// nothing else.
func (a *Agent) watchMemory(ctx context.Context) error {
	if a.deps.KernelLog == "" {
		return nil
	}
	err := oom.Watch(ctx, a.deps.KernelLog, func(v oom.Victim) {
		a.log.Warn("the node was out of memory", "process", v.Process, "pid", v.PID, "cgroup", v.Cgroup)
		a.events.Node(v1.EventTypeWarning, reasonSystemOOM, fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", v.Process, v.PID))
	})
	if err != nil {
		a.log.Warn("not told when the node is out of memory", "err", err)
	}
	return nil
}
