package status

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// isSidecar reports whether an init container is a sidecar: one that keeps running beside the pod's containers.
func isSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// startsAgain reports whether a container that ended so is started again: all are, it was killed for that, or restartsAfter says so.
func (in *Input) startsAgain(c *v1.Container, end *v1.ContainerStateTerminated) bool {
	return in.RestartingAll || in.condemned(end) || restartsAfter(c, in.Pod.Spec.RestartPolicy, end.ExitCode)
}

// condemned reports whether a container that ended so was killed to be started again.
func (in *Input) condemned(end *v1.ContainerStateTerminated) bool {
	_, id, _ := strings.Cut(end.ContainerID, "://")
	return in.Condemned[id]
}

// restartsAfter reports whether a container that ended with exitCode is started again: the container's first matching rule decides, then the
// container's own policy, then the pod's.
func restartsAfter(c *v1.Container, pod v1.RestartPolicy, exitCode int32) bool {
	policy := pod
	if c.RestartPolicy != nil {
		if ruleMatches(c.RestartPolicyRules, exitCode) {
			return true
		}
		policy = v1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// ruleMatches reports whether a rule applies to exitCode. Both actions that rules can have start the container again.
func ruleMatches(rules []v1.ContainerRestartRule, exitCode int32) bool {
	for _, rule := range rules {
		if rule.ExitCodes == nil {
			continue
		}
		listed := slices.Contains(rule.ExitCodes.Values, exitCode)
		switch rule.ExitCodes.Operator {
		case v1.ContainerRestartRuleOnExitCodesOpIn:
			if listed {
				return true
			}
		case v1.ContainerRestartRuleOnExitCodesOpNotIn:
			if !listed {
				return true
			}
		}
	}
	return false
}
