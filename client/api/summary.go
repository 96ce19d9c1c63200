package api

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

// reasonNodeLost is the reason that a control plane sets in the pods of a node that does not
// report.
const reasonNodeLost = "NodeLost"

// PodSummary has what "kubectl get pods -o wide" shows of a pod.
type PodSummary struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Node      string    `json:"node,omitempty"`
	// Ready is the number of ready containers. Containers is the number of all containers that
	// count, including sidecars.
	Ready      int `json:"ready"`
	Containers int `json:"containers"`
	// Status is the text of kubectl's STATUS column.
	Status string      `json:"status"`
	Phase  v1.PodPhase `json:"phase"`
	// Restarts is the sum over the containers. LastRestart is when the last restart happened.
	Restarts    int        `json:"restarts"`
	LastRestart *time.Time `json:"lastRestart,omitempty"`
	// Created is when the API server, or else the agent, first saw the pod; zero if neither is
	// known.
	Created time.Time         `json:"created"`
	IPs     []string          `json:"ips,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// ReadinessGates is the number of the pod's readiness gates. ReadinessGatesTrue is the number
	// of those whose condition is true.
	ReadinessGates     int `json:"readinessGates,omitempty"`
	ReadinessGatesTrue int `json:"readinessGatesTrue,omitempty"`
	// Source is the source of the pod: file, http or api.
	Source string `json:"source,omitempty"`
}

// Summarize returns a pod's summary. STATUS follows the rules of kubectl's printer: a reason of the
// pod, of its first unfinished init container, or of one of its containers replaces the phase.
func Summarize(pod *v1.Pod) PodSummary {
	s := PodSummary{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: pod.Spec.NodeName,
		Containers: len(pod.Spec.Containers), Phase: pod.Status.Phase,
		Created: created(pod), Labels: pod.Labels, Source: pods.Source(pod),
	}
	for _, ip := range pod.Status.PodIPs {
		s.IPs = append(s.IPs, ip.IP)
	}
	for _, gate := range pod.Spec.ReadinessGates {
		s.ReadinessGates++
		if condition(pod, gate.ConditionType) {
			s.ReadinessGatesTrue++
		}
	}
	t := tally{pod: pod, word: string(pod.Status.Phase)}
	if pod.Status.Reason != "" {
		t.word = pod.Status.Reason
	}
	initializing := t.initContainers()
	if !initializing || condition(pod, v1.PodInitialized) {
		t.appContainers()
	}
	if pods.Held(pod) {
		t.word = stoppedWord(pod)
	}
	switch {
	case pod.DeletionTimestamp == nil:
	case pod.Status.Reason == reasonNodeLost:
		t.word = "Unknown"
	case !pods.Terminal(pod.Status.Phase):
		t.word = "Terminating"
	}
	s.Containers += t.sidecars
	s.Status, s.Ready, s.Restarts = t.word, t.ready, t.restarts
	if s.Status == "" {
		s.Status = "Unknown"
	}
	if !t.last.IsZero() {
		s.LastRestart = &t.last
	}
	return s
}

// stoppedWord is the status of a pod that an operator or a drain has stopped.
func stoppedWord(pod *v1.Pod) string {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].State.Running != nil {
				return Stopping
			}
		}
	}
	return pod.Status.Reason
}

// Stopping is the status of a pod that an operator or a drain has stopped, while a container of it
// still runs.
const Stopping = "Stopping"

// ContainerNames returns the names of a pod's containers: regular ones, then ephemeral ones, then
// init containers.
func ContainerNames(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	return names
}

// HasTerminal reports whether a container of the pod has a terminal. All output of such a container
// is in one stream.
func HasTerminal(pod *v1.Pod, name string) bool {
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return c.TTY
		}
	}
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].TTY
			}
		}
	}
	return false
}

// created is the creation time, or else when a source first saw the pod, or else when the agent
// accepted it.
func created(pod *v1.Pod) time.Time {
	if !pod.CreationTimestamp.IsZero() {
		return pod.CreationTimestamp.Time
	}
	if at, err := time.Parse(time.RFC3339Nano, pod.Annotations[pods.AnnotationSeen]); err == nil {
		return at
	}
	if pod.Status.StartTime != nil {
		return pod.Status.StartTime.Time
	}
	return time.Time{}
}

// tally counts a pod's containers.
type tally struct {
	pod             *v1.Pod
	word            string
	ready, restarts int
	sidecars        int
	last            time.Time
}

// initContainers counts the init containers up to the first that is not done, and reports whether
// there is one. While init containers run, the restarts of all of them count; later only those of
// sidecars do.
func (t *tally) initContainers() (initializing bool) {
	sidecar := map[string]bool{}
	for i := range t.pod.Spec.InitContainers {
		c := &t.pod.Spec.InitContainers[i]
		if pods.Sidecar(c) {
			sidecar[c.Name] = true
			t.sidecars++
		}
	}
	var kept tally // the counts of sidecars only
	for i := range t.pod.Status.InitContainerStatuses {
		c := &t.pod.Status.InitContainerStatuses[i]
		t.restarted(c)
		if sidecar[c.Name] {
			kept.restarted(c)
		}
		if end := c.State.Terminated; end != nil && end.ExitCode == 0 {
			continue
		}
		if sidecar[c.Name] && c.Started != nil && *c.Started {
			if c.Ready {
				t.ready++
			}
			continue
		}
		t.word = initWord(c, i, len(t.pod.Spec.InitContainers))
		initializing = true
		break
	}
	if !initializing || condition(t.pod, v1.PodInitialized) {
		t.restarts, t.last = kept.restarts, kept.last
	}
	return initializing
}

// initWord is the status of a pod whose init container number i is not done.
func initWord(c *v1.ContainerStatus, i, n int) string {
	switch state := c.State; {
	case state.Terminated != nil:
		return "Init:" + endWord(state.Terminated)
	case state.Waiting != nil && state.Waiting.Reason != "" && state.Waiting.Reason != "PodInitializing":
		return "Init:" + state.Waiting.Reason
	}
	return fmt.Sprintf("Init:%d/%d", i, n)
}

// appContainers counts the regular containers. The first one with a reason sets the status.
func (t *tally) appContainers() {
	running, failure := false, ""
	for i := len(t.pod.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &t.pod.Status.ContainerStatuses[i]
		t.restarted(c)
		switch state := c.State; {
		case state.Waiting != nil && state.Waiting.Reason != "":
			t.word = state.Waiting.Reason
		case state.Terminated != nil:
			t.word = endWord(state.Terminated)
			if state.Terminated.ExitCode != 0 {
				failure = t.word
			}
		case c.Ready && state.Running != nil:
			running = true
			t.ready++
		}
	}
	if t.word != "Completed" {
		return
	}
	switch {
	case running && condition(t.pod, v1.PodReady):
		t.word = "Running"
	case failure != "":
		t.word = failure
	case running:
		t.word = "NotReady"
	}
}

// endWord is the status of a container that ended.
func endWord(end *v1.ContainerStateTerminated) string {
	switch {
	case end.Reason != "":
		return end.Reason
	case end.Signal != 0:
		return fmt.Sprintf("Signal:%d", end.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", end.ExitCode)
}

func (t *tally) restarted(c *v1.ContainerStatus) {
	t.restarts += int(c.RestartCount)
	if end := c.LastTerminationState.Terminated; end != nil && end.FinishedAt.After(t.last) {
		t.last = end.FinishedAt.Time
	}
}

// condition reports whether a condition of the pod is true.
func condition(pod *v1.Pod, kind v1.PodConditionType) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status == v1.ConditionTrue
		}
	}
	return false
}
