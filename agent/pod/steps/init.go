package steps

import (
	"context"
	"errors"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/internal/pods"
)

// Init has the init containers, sidecars among them.
type Init struct {
	*Starter
}

// Name is "init".
func (Init) Name() string { return "init" }

// Ensure removes what earlier attempts left behind, and starts the init containers whose turn it
// is, even if something is left behind.
func (i Init) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	left := i.tidy(ctx, p)
	out, err := i.startAll(ctx, p, plan.Init)
	err = errors.Join(left, err)
	for _, leftover := range p.Leftovers {
		out.RetryAt = Earlier(out.RetryAt, leftover.tried.Add(leftoverRetry))
	}
	if err == nil && out.Waiting == "" && !p.Actions.Initialized {
		out.Waiting = i.current(p)
	}
	return out, err
}

// current says which init container the pod waits for: one that has to end, or else the last
// sidecar that runs and has to start.
func (i Init) current(p *Sync) string {
	waits := ""
	for n := range p.Pod.Spec.InitContainers {
		spec := &p.Pod.Spec.InitContainers[n]
		c := p.Observed.Latest(spec.Name)
		switch {
		case c == nil || !c.Running() || c.SandboxID != p.Actions.SandboxID:
		case !pods.Sidecar(spec):
			return "init container " + spec.Name + " to end"
		case spec.StartupProbe != nil:
			waits = "sidecar " + spec.Name + " to pass its startup probe"
		default:
			waits = "sidecar " + spec.Name + " to start"
		}
	}
	return waits
}

// Remove does nothing: init containers stop with the other containers.
func (Init) Remove(context.Context, *Sync) (Outcome, error) { return Outcome{}, nil }
