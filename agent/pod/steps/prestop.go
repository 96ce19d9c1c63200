package steps

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/hooks"
)

// hookOvertime is how long a hook may outlive the grace at most. The hook ends with its container,
// minGrace later, unless the runtime fails to stop the container.
const hookOvertime = minGrace + stopRetry

// errGraceOver is the result of a hook that needs more than the grace.
var errGraceOver = errors.New("the grace period is over")

// hook runs a container's preStop hook and waits for it at most for the grace that is left.
// [Collect] records the end of the hook, or of the grace. A hook that needs more is not cut off: it
// can run until the container's SIGKILL, as with a kubelet.
func (s *Stopper) hook(p *Sync, spec *v1.Container, id string, left time.Duration) {
	pod, podIP, log, group := p.Pod, s.podIP(p), p.Log, p.Tasks
	p.start(preStopTask+id, func(ctx context.Context) error {
		ended := make(chan error, 1)
		group.Start(hookTask+id, func(ctx context.Context) error {
			bounded, cancel := context.WithTimeout(ctx, left+hookOvertime)
			defer cancel()
			err := s.Hooks.Run(bounded, pod, podIP, spec, id, spec.Lifecycle.PreStop)
			ended <- err
			return err
		})
		timer := time.NewTimer(left)
		defer timer.Stop()
		var err error
		select {
		case err = <-ended:
		case <-timer.C:
			err = errGraceOver
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("preStop hook failed: the container is stopped all the same", "container", spec.Name, "err", err)
			s.Events.Pod(pod, spec.Name, v1.EventTypeWarning, hooks.ReasonFailedPreStopHook,
				hooks.Message(hooks.ReasonFailedPreStopHook, err))
		}
		return err
	})
}

func (s *Stopper) podIP(p *Sync) string {
	if p.Pod.Spec.HostNetwork {
		return first(s.HostIPs())
	}
	return first(SandboxIPs(p.Observed.Sandbox()))
}
