package pod

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/configs"
)

// The annotations by which a pod asks for its own crash back-off delays, within the node's limits.
const (
	annotationCrashInitial = "berth.dev/crash-loop-initial-delay"
	annotationCrashMax     = "berth.dev/crash-loop-max-delay"
)

// backoffLimits returns a pod's crash back-off limits: the node's limits, or the pod's own as far
// as the node allows them. problems name the values that the pod asks for and does not get. Package
// plan (crashloop.go) computes how the delays grow within the limits.
func backoffLimits(
	node configs.CrashLoopBackOffConfiguration, pod *v1.Pod,
) (limits plan.BackoffLimits, problems []string) {
	limits = plan.BackoffLimits{
		Initial: node.InitialDelay.Duration, Max: node.MaxDelay.Duration, Reset: node.ResetAfter.Duration,
		CleanExitsFree: node.CleanExits == configs.CleanExitsFree,
	}
	for _, a := range []struct {
		name string
		into *time.Duration
	}{{annotationCrashInitial, &limits.Initial}, {annotationCrashMax, &limits.Max}} {
		text, ok := pod.Annotations[a.name]
		if !ok {
			continue
		}
		asked, err := time.ParseDuration(text)
		if err != nil {
			problems = append(problems,
				fmt.Sprintf("metadata.annotations[%s]: Invalid value: %q: must be a duration such as 30s; %s counts",
					a.name, text, *a.into))
			continue
		}
		*a.into = min(max(asked, node.PodMinDelay.Duration), node.PodMaxDelay.Duration)
		if *a.into != asked {
			problems = append(problems, fmt.Sprintf("metadata.annotations[%s]: %q: the node allows %s to %s; %s counts",
				a.name, text, node.PodMinDelay.Duration, node.PodMaxDelay.Duration, *a.into))
		}
	}
	limits.Initial = min(limits.Initial, limits.Max)
	return limits, problems
}

// limits returns a pod's crash back-off limits.
func (e *Engine) limits(pod *v1.Pod) plan.BackoffLimits {
	limits, _ := backoffLimits(e.cfg.CrashLoopBackOff, pod)
	return limits
}

// warnBackoff warns of the delays that a new pod asks for and does not get.
func (e *Engine) warnBackoff(pod *v1.Pod) {
	_, problems := backoffLimits(e.cfg.CrashLoopBackOff, pod)
	for _, problem := range problems {
		e.deps.Events.Pod(pod, "", v1.EventTypeWarning, "FailedValidation", problem)
	}
}
