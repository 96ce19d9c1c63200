package server

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// unhealthy is the reason of the event about a failed probe.
const unhealthy = "Unhealthy"

// notReadyAfter is how long a pod may run without being ready before it needs a person.
const notReadyAfter = time.Minute

// maxCause bounds the text about one pod, in bytes; "berth why" has all of it.
const maxCause = 200

// podFaults names the pods that do not come up by themselves, or only if something changes, each
// with the cause: a container cannot be made or ends again and again, an image cannot be pulled, a
// step before that or of the removal fails, a pod runs for long and is not ready, or a manifest's
// pod has failed.
// Failed pods of an API server are the concern of the cluster.
func (s *Server) podFaults(all []*v1.Pod, now time.Time) []string {
	var out []string
	for _, pod := range all {
		if pods.Held(pod) {
			continue
		}
		if cause := s.cause(pod, now); cause != "" {
			out = append(out, fmt.Sprintf(`pod %s/%s: %s: see "berth why %[1]s/%[2]s"`, pod.Namespace, pod.Name, cut(cause)))
		}
	}
	return some(out)
}

// cause says why a pod needs a person; empty if it needs none.
func (s *Server) cause(pod *v1.Pod, now time.Time) string {
	if pods.Terminal(pod.Status.Phase) {
		if pod.Status.Phase == v1.PodFailed && !pods.FromAPI(pod) {
			return joinWords(": ", "Failed", failedBecause(pod, nil))
		}
		return ""
	}
	for _, c := range everyStatus(pod) {
		w := c.State.Waiting
		if w == nil || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
			continue
		}
		why := w.Message
		if end := lastEnd(c); end != "" && w.Reason == "CrashLoopBackOff" {
			why = end // the message only says how long the back-off is
		}
		return joinWords("; ", joinWords(": ", fmt.Sprintf("container %s: %s", c.Name, w.Reason), why),
			failedProbe(s.backend.Events(), pod, c))
	}
	if pod.Status.Phase == v1.PodPending || pod.DeletionTimestamp != nil {
		return s.stuckAt(pod)
	}
	ready := conditionOf(pod, v1.PodReady)
	if pod.Status.Phase == v1.PodRunning && pod.DeletionTimestamp == nil && ready != nil &&
		ready.Status != v1.ConditionTrue && now.Sub(ready.LastTransitionTime.Time) > notReadyAfter {
		return joinWords("; ", "waits for "+unready(pod), failedProbes(s.backend.Events(), pod))
	}
	return ""
}

// cut shortens a text. What is wrong stands first, and its cause last: the middle goes.
func cut(text string) string {
	if len(text) <= maxCause {
		return text
	}
	const part = maxCause / 2
	return strings.ToValidUTF8(text[:part], "") + " … " + strings.ToValidUTF8(text[len(text)-part:], "")
}

// stuckAt says which step of a pod fails, and how; empty if none does.
func (s *Server) stuckAt(pod *v1.Pod) string {
	line, _ := s.backend.Timeline(pod.UID)
	at := obstacle(line)
	if at == nil || at.Outcome != timeline.Failed || at.Step == timeline.StepObserve {
		return ""
	}
	return fmt.Sprintf("step %s fails: %s", at.Step, at.Message)
}

// failedProbes says how the probes of a pod's containers last failed that keep them from being
// ready; empty if none did.
func failedProbes(events []v1.Event, pod *v1.Pod) string {
	var out []string
	for _, c := range everyStatus(pod) {
		if text := failedProbe(events, pod, c); text != "" {
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// failedProbe says how a probe of a container last failed, in the container's present instance or,
// while it waits to run again, in the last one; empty if none did, or if the container is ready.
func failedProbe(events []v1.Event, pod *v1.Pod, c *v1.ContainerStatus) string {
	var began time.Time
	switch last := c.LastTerminationState.Terminated; {
	case c.Ready:
		return ""
	case c.State.Running != nil:
		began = c.State.Running.StartedAt.Time
	case c.State.Waiting != nil && last != nil:
		began = last.StartedAt.Time
	default:
		return ""
	}
	for i := range slices.Backward(events) {
		e := &events[i]
		if e.Reason == unhealthy && e.InvolvedObject.UID == pod.UID && api.ContainerOf(e) == c.Name {
			if e.LastTimestamp.Time.Before(began) {
				return ""
			}
			return strings.TrimSpace(e.Message)
		}
	}
	return ""
}
