package status

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// Restarts reports whether the named container of a pod is restarted after it ended with exitCode,
// as long as the pod is not taken down. It returns false if the pod's spec is not known.
func Restarts(pod *v1.Pod, name string, exitCode int32) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return pods.Sidecar(c) || exitCode != 0 && restartsAfter(c, pod.Spec.RestartPolicy, exitCode)
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return (c.RestartPolicy != nil || pod.Spec.RestartPolicy != "") &&
				restartsAfter(c, pod.Spec.RestartPolicy, exitCode)
		}
	}
	return false
}

// startsAgain reports whether a container that ended like this is restarted: because all containers
// restart, because it was killed for a restart, or because restartsAfter says so.
func (in *Input) startsAgain(c *v1.Container, end *v1.ContainerStateTerminated) bool {
	return in.RestartingAll || in.killedToRestart(end) || restartsAfter(c, in.Pod.Spec.RestartPolicy, end.ExitCode)
}

// killedToRestart reports whether a container that ended like this was killed to be restarted.
func (in *Input) killedToRestart(end *v1.ContainerStateTerminated) bool {
	_, id, _ := strings.Cut(end.ContainerID, "://")
	return in.Killed[id]
}

// restartsAfter reports whether a container that ended with exitCode is restarted. The container's
// first matching rule decides, then the container's own policy, then the pod's.
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

// ruleMatches reports whether a rule applies to exitCode. Both possible actions of a rule restart
// the container.
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
