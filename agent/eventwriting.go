package agent

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/events/writer"
)

// writeEvents writes the node's events to the API server, in a cluster. They are bounded apart from all other requests.
func (a *Agent) writeEvents(ctx context.Context) error {
	core, err := a.deps.Conn.Unbounded().Group(v1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	cfg := writer.Config{Burst: int(a.cfg.Kubelet.EventBurst)}
	if qps := a.cfg.Kubelet.EventRecordQPS; qps != nil {
		cfg.QPS = int(*qps)
	}
	w := writer.New(cfg, writer.Deps{Core: core, Busy: a.slots.Queued, Logger: a.log})
	a.events.Tell(w.Take)
	return w.Run(ctx)
}
