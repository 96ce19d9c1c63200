package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// restarts reports whether a container that ended with exitCode is to run again. The container's
// rules decide (KEP-5307), then its own policy, then the pod's.
func (d *decision) restarts(c *v1.Container, exitCode int32) bool {
	if ruleFor(c, exitCode) != nil {
		return true
	}
	switch d.policy(c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// ruleFor returns the first of a container's rules that applies to exitCode, nil if none does.
// Rules count only beside a policy of the container's own.
func ruleFor(c *v1.Container, exitCode int32) *v1.ContainerRestartRule {
	if c.RestartPolicy == nil {
		return nil
	}
	i := slices.IndexFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool { return applies(r, exitCode) })
	if i < 0 {
		return nil
	}
	return &c.RestartPolicyRules[i]
}

// policy returns the restart policy of a container: its own, or the pod's.
func (d *decision) policy(c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return d.Pod.Spec.RestartPolicy
}

// applies reports whether a restart rule applies to exitCode.
func applies(r v1.ContainerRestartRule, exitCode int32) bool {
	if r.ExitCodes == nil {
		return false
	}
	listed := slices.Contains(r.ExitCodes.Values, exitCode)
	switch r.ExitCodes.Operator {
	case v1.ContainerRestartRuleOnExitCodesOpIn:
		return listed
	case v1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !listed
	default:
		return false
	}
}

// again looks at an app container that does not run. It reports whether the container is to run
// again after it has run, and whether it has run at all.
func (d *decision) again(c *v1.Container) (again, ran bool) {
	if last := d.Observed.Latest(c.Name); last != nil && d.KilledToRestart[last.Id] {
		return true, true
	}
	code, ran := d.ended(c.Name)
	return ran && d.restarts(c, code), ran
}

// ended returns the exit code of an app container that does not run and has run. It is the latest
// attempt's, or the remembered one if the runtime no longer has the record of that attempt.
func (d *decision) ended(name string) (exitCode int32, ok bool) {
	c := d.Observed.Latest(name)
	if c == nil || c.Exited() && c.Attempt()+1 < d.RestartFloor[name] {
		if exitCode, ok = d.Ended[name]; ok {
			return exitCode, true
		}
	}
	if c == nil {
		return 0, false
	}
	return c.ExitCode, c.Exited()
}

// allDone reports whether the pod has come to its end, so that a lost sandbox needs no successor.
// It has if an init container failed for good, or if all app containers have ended for good. A pod
// with policy Never that ever ran an app container is done as soon as none of its app containers is
// to restart: it is not run twice.
func (d *decision) allDone() bool {
	if d.initFailed() {
		return true
	}
	ended := 0
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		again, ran := d.again(c)
		if again {
			return false
		}
		if ran {
			ended++
		}
	}
	return ended > 0 && (ended == len(d.Pod.Spec.Containers) || d.Pod.Spec.RestartPolicy == v1.RestartPolicyNever)
}

// initFailed reports whether an init container failed for good.
func (d *decision) initFailed() bool {
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		last := d.Observed.Latest(c.Name)
		if !pods.Sidecar(c) && last != nil && last.Exited() && last.ExitCode != 0 && !d.restarts(c, last.ExitCode) {
			return true
		}
	}
	return false
}
