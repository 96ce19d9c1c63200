package steps

import (
	"context"
	"time"

	"github.com/berthd/berth/probes"
)

// Probes has the probes of the pod's running containers.
type Probes struct {
	Manager *probes.Manager
	// HostIPs returns the node's addresses. Host-network pods are probed there.
	HostIPs func() []string
}

// Name is "probes".
func (Probes) Name() string { return "probes" }

// Ensure has every running container probed, also those that this sync started.
func (s Probes) Ensure(_ context.Context, p *Sync) (Outcome, error) {
	s.Manager.Sync(p.Pod, s.podIP(p), targets(p))
	return Outcome{}, nil
}

// targets lists the containers that run, also those that this sync started.
func targets(p *Sync) []probes.Target {
	var out []probes.Target
	for _, c := range p.Observed.Running() {
		if p.Started[c.Name()] != "" || p.Record.PostStart[c.Id] {
			continue // listed below, or not started before its postStart hook has ended
		}
		_, stopping := p.Record.Stops[c.Id]
		out = append(out, probes.Target{
			Name:        c.Name(),
			ContainerID: c.Id,
			StartedAt:   time.Unix(0, c.StartedAt),
			Terminating: stopping || p.Stop != nil,
		})
	}
	for name, id := range p.Started {
		if p.Record.PostStart[id] {
			continue
		}
		out = append(out, probes.Target{Name: name, ContainerID: id, StartedAt: time.Now()})
	}
	return out
}

// Remove ends the probes once no container runs. While containers stop, their readiness is still
// probed.
func (s Probes) Remove(_ context.Context, p *Sync) (Outcome, error) {
	if len(p.Observed.Running()) == 0 {
		s.Manager.Stop(p.Pod.UID)
		return Outcome{}, nil
	}
	s.Manager.Sync(p.Pod, s.podIP(p), targets(p))
	return Outcome{}, nil
}

func (s Probes) podIP(p *Sync) string {
	if p.Pod.Spec.HostNetwork {
		return first(s.HostIPs())
	}
	if p.Sandbox == nil {
		// in the take-down, or with the sandbox as it was found
		return first(SandboxIPs(p.Observed.Sandbox()))
	}
	return first(SandboxIPs(p.Sandbox))
}
