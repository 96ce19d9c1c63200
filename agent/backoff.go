package agent

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/configs"
)

// The annotations by which a pod asks for crash back-off delays of its own, within what the node allows.
const (
	annotationCrashInitial = "berth.dev/crash-loop-initial-delay"
	annotationCrashMax     = "berth.dev/crash-loop-max-delay"
)

// backoffLimits returns a pod's crash back-off limits: the node's, or what the pod asks for as far as the node allows it. What it asks for and does not
// get is said in problems.
func backoffLimits(node configs.CrashLoopBackOffConfiguration, pod *v1.Pod) (limits plan.BackoffLimits, problems []string) {
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
			problems = append(problems, fmt.Sprintf("metadata.annotations[%s]: Invalid value: %q: must be a duration such as 30s; %s counts", a.name, text, *a.into))
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
func (a *Agent) limits(pod *v1.Pod) plan.BackoffLimits {
	limits, _ := backoffLimits(a.cfg.Berth.CrashLoopBackOff, pod)
	return limits
}

// tellBackoff tells of the delays that a new pod asks for and does not get.
func (a *Agent) tellBackoff(pod *v1.Pod) {
	_, problems := backoffLimits(a.cfg.Berth.CrashLoopBackOff, pod)
	for _, problem := range problems {
		a.events.Pod(pod, "", v1.EventTypeWarning, "FailedValidation", problem)
	}
}
