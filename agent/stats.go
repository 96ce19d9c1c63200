package agent

import (
	"github.com/berthd/berth/agent/stats"
)

// newStats returns what reads the use of the node and its pods.
func (a *Agent) newStats() *stats.Collector {
	return stats.New(stats.Config{Node: a.node.Name, RootDir: a.cfg.RootDir, PodLogsDir: a.cfg.Kubelet.PodLogsDir}, stats.Deps{
		Cgroups: func() stats.Cgroups {
			cgroups, ok := a.deps.Cgroups.(stats.Cgroups)
			if !ok || !a.prepared.Load() {
				return nil
			}
			return cgroups
		},
		Runtime: a.deps.Runtime, Pods: a.Pods, Claimed: a.volumes.Claimed, Driver: a.volumes.CSI().Stats, Logger: a.log,
	})
}
