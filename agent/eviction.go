package agent

import (
	"fmt"

	"github.com/berthd/berth/agent/node/eviction"
)

// newEviction returns the manager that asks pods to leave when the node runs short.
func (b *base) newEviction(p *parts) (*eviction.Manager, error) {
	cfg, err := eviction.ConfigFrom(&b.cfg.Kubelet, b.deps.Cluster != nil)
	if err != nil {
		return nil, fmt.Errorf("reading the thresholds of evictions: %w", err)
	}
	if b.deps.KernelNotices {
		cfg.KernelNotices = eviction.KernelNotices
	}
	return eviction.New(cfg, eviction.Deps{
		Stats:     p.stats,
		Pods:      b.workers,
		Allocated: b.room.Allocated,
		Pressure:  b.pressure,
		Changed:   b.signals.Node.Notify,
		Again:     b.signals.wanted.Notify,
		Events:    b.deps.Events,
		Metrics:   b.deps.Metrics,
		Logger:    b.deps.Logger,
	}), nil
}
