package agent

import (
	"github.com/berthd/berth/agent/node/configstate"
	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/agent/telemetry/history"
	"github.com/berthd/berth/agent/volumes"
)

// knowledge is what the agent knows for people, and does not act on.
type knowledge struct {
	history *history.Recorder
	config  *configstate.State
	stats   *stats.Collector
}

// newStats returns the collector that reads the usage of the node and its pods.
func (b *base) newStats(p *parts, disks *volumes.Manager) *stats.Collector {
	return stats.New(stats.Config{Node: b.deps.Node.Name, RootDir: b.cfg.RootDir, PodLogsDir: b.cfg.Kubelet.PodLogsDir},
		stats.Deps{
			Cgroups: b.deps.Cgroups.Stats, Runtime: b.deps.Runtime, Pods: p.engine.Pods, Claimed: disks.Claimed,
			Driver: disks.CSI().Stats, Looks: b.looks, Logger: b.deps.Logger,
		})
}
