package server

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/eviction"
	"github.com/berthd/berth/agent/node/preempt"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// refusedPrefix begins the message of a pod that admission refused. The words are the kubelet's.
const refusedPrefix = "Pod was rejected: "

// failedBecause says why a pod has failed: the pod's own reason, with what the timeline adds to it,
// and each container with an exit code other than 0. It returns the empty string if the pod has not
// failed.
func failedBecause(pod *v1.Pod, entries []timeline.Entry) string {
	if pod.Status.Phase != v1.PodFailed {
		return ""
	}
	var parts []string
	if text := joinWords(": ", pod.Status.Reason, pod.Status.Message); text != "" {
		if message, refused := strings.CutPrefix(pod.Status.Message, refusedPrefix); refused {
			if detail := detailOf(entries, pod.Status.Reason+": "+message+": "); detail != "" {
				text += " (" + detail + ")"
			}
			text += "; it is not tried again"
			if !pods.FromAPI(pod) {
				text += fmt.Sprintf(" before \"berth start %s\", or a change of its manifest", pods.FullName(pod))
			}
		} else if pod.Status.Reason == eviction.Reason && eviction.ComesBack(pod) {
			text += "; it runs again when the node has had enough for evictionPressureTransitionPeriod"
		} else if pod.Status.Reason == preempt.Reason && eviction.ComesBack(pod) {
			text += "; it runs again when the node has room for it"
		}
		parts = append(parts, text)
	}
	for _, c := range everyStatus(pod) {
		switch t := c.State.Terminated; {
		case t == nil || t.ExitCode == 0:
		case t.Reason == status.ReasonStatusUnknown:
			parts = append(parts, fmt.Sprintf("container %s did not start, or was lost: the runtime does not have it", c.Name))
		default:
			parts = append(parts,
				joinWords(": ", fmt.Sprintf("container %s ended with %s", c.Name, exit(t)),
					strings.TrimSpace(t.Message)))
		}
	}
	return strings.Join(parts, "; ")
}

// detailOf returns what a failed step of the timeline adds to a known message; empty if no step
// adds anything.
func detailOf(entries []timeline.Entry, known string) string {
	for i := range entries {
		if detail, more := strings.CutPrefix(entries[i].Message, known); more && entries[i].Outcome == timeline.Failed {
			return detail
		}
	}
	return ""
}

// exit describes how a container ended: "exit code 1 (Error)", "exit code 137 (OOMKilled,
// SIGKILL)".
func exit(t *v1.ContainerStateTerminated) string {
	why := joinWords(", ", t.Reason, signalOf(t))
	if why == "" {
		return fmt.Sprintf("exit code %d", t.ExitCode)
	}
	return fmt.Sprintf("exit code %d (%s)", t.ExitCode, why)
}

// signalOf names the signal that ended a container, empty if there was none: runtimes report a
// signal as 128 and its number, as shells do.
func signalOf(t *v1.ContainerStateTerminated) string {
	number := t.Signal
	if number == 0 {
		number = t.ExitCode - 128
	}
	if number <= 0 {
		return ""
	}
	return unix.SignalName(syscall.Signal(number))
}

// everyStatus returns the statuses of a pod's containers, the init containers first.
func everyStatus(pod *v1.Pod) []*v1.ContainerStatus {
	var out []*v1.ContainerStatus
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			out = append(out, &list[i])
		}
	}
	return out
}

// joinWords joins the words that are not empty.
func joinWords(sep string, words ...string) string {
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, w)
		}
	}
	return strings.Join(out, sep)
}

// unready says what keeps a pod from being ready although all its steps have succeeded; empty if
// nothing does. It names every container, with its message. What no retry can mend comes first.
// Containers that only wait for the init containers are left out if there are others.
func unready(pod *v1.Pod) string {
	var permanent, others []string
	for _, c := range everyStatus(pod) {
		if w := c.State.Waiting; w != nil && w.Reason == "PodInitializing" && len(permanent)+len(others) > 0 {
			continue
		}
		text := joinWords(": ", containerWaits(pod, c)...)
		switch {
		case text == "":
		case c.State.Waiting != nil && beyondRetry(c.State.Waiting.Reason):
			permanent = append(permanent, text)
		default:
			others = append(others, text)
		}
	}
	if all := append(permanent, others...); len(all) > 0 {
		return strings.Join(all, "; ")
	}
	for _, waits := range []string{gates(pod), resizing(pod)} {
		if waits != "" {
			return waits
		}
	}
	if pod.Status.Phase == v1.PodPending && len(pod.Status.ContainerStatuses) == 0 {
		return "its first sync"
	}
	return ""
}

// gates says which readiness gates keep the pod from being ready although its containers are ready,
// and who can change that; empty if none does.
func gates(pod *v1.Pod) string {
	ready := conditionOf(pod, v1.PodReady)
	if ready == nil || ready.Status == v1.ConditionTrue || ready.Message == "" {
		return ""
	}
	if ready.Reason != status.ReasonReadinessGatesNotReady {
		return ready.Message
	}
	var closed []string
	for _, gate := range pod.Spec.ReadinessGates {
		switch c := conditionOf(pod, gate.ConditionType); {
		case c == nil:
			closed = append(closed, fmt.Sprintf("%s (there is no such condition)", gate.ConditionType))
		case c.Status != v1.ConditionTrue:
			closed = append(closed,
				joinWords(": ", fmt.Sprintf("%s (the condition is %s)", gate.ConditionType, c.Status), c.Message))
		}
	}
	text := "its readiness gates: " + strings.Join(closed, ", ")
	if !pods.FromAPI(pod) {
		return text +
			"; nobody can set a condition of a pod from a manifest, which never becomes ready: take readinessGates " +
			"out of it"
	}
	return text + "; whoever made the gate sets it through the API server"
}

// resizing says why a pod runs with other resources than it requests; empty if it does not.
func resizing(pod *v1.Pod) string {
	c := conditionOf(pod, v1.PodResizePending)
	if c == nil || c.Status != v1.ConditionTrue {
		return ""
	}
	text := joinWords(": ", fmt.Sprintf("its resize (condition %s)", c.Type), c.Reason, c.Message)
	if c.Reason == v1.PodReasonInfeasible {
		return text + "; it runs on with what it has, until it asks for less"
	}
	return text + "; it runs on with what it has"
}

func conditionOf(pod *v1.Pod, kind v1.PodConditionType) *v1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// beyondRetry reports whether a container waits for a reason that no retry can mend: somebody has
// to change the manifest or an object. The reasons are the kubelet's.
func beyondRetry(reason string) bool {
	return slices.Contains([]string{
		"InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
	}, reason)
}

// crashed returns the containers that ended with an error and wait to run again.
func crashed(pod *v1.Pod) []string {
	var out []string
	for _, c := range everyStatus(pod) {
		last := c.State.Terminated
		if c.State.Waiting != nil {
			last = c.LastTerminationState.Terminated
		}
		if last != nil && last.ExitCode != 0 {
			out = append(out, c.Name)
		}
	}
	return out
}

// lastEnd says how a container that is to run again ended before, without a message that the
// container waits with, too.
func lastEnd(c *v1.ContainerStatus) string {
	last := c.LastTerminationState.Terminated
	if last == nil {
		return ""
	}
	message := strings.TrimSpace(last.Message)
	if w := c.State.Waiting; w != nil && strings.Contains(w.Message, message) {
		message = ""
	}
	return joinWords(": ", "it last ended with "+exit(last), message)
}

// containerWaits says what a container waits for, and the details; it is empty if the container
// waits for nothing.
func containerWaits(pod *v1.Pod, c *v1.ContainerStatus) []string {
	spec := findContainer(pod, c.Name)
	switch state := c.State; {
	case state.Waiting != nil:
		return []string{
			fmt.Sprintf("container %s: %s", c.Name, state.Waiting.Reason),
			joinWords("; ", state.Waiting.Message, lastEnd(c)),
		}
	case state.Terminated != nil && state.Terminated.ExitCode != 0:
		return []string{
			fmt.Sprintf("container %s, which ended with %s", c.Name, exit(state.Terminated)),
			strings.TrimSpace(state.Terminated.Message),
		}
	case state.Running == nil || c.Ready || spec == nil:
		return nil
	case spec.StartupProbe != nil && (c.Started == nil || !*c.Started):
		return []string{fmt.Sprintf("container %s to pass its startup probe", c.Name)}
	case spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil && (c.Started == nil || !*c.Started):
		return []string{fmt.Sprintf("the postStart hook of container %s to end", c.Name)}
	case spec.ReadinessProbe != nil:
		return []string{fmt.Sprintf("container %s to pass its readiness probe", c.Name)}
	}
	return nil
}

func findContainer(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}
