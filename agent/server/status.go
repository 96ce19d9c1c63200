package server

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// The states in which [api.NodeStatus] counts pods.
const (
	podRunning     = "Running"
	podNotReady    = "NotReady"
	podTerminating = "Terminating"
	podStopped     = pods.ReasonStopped
)

// status answers with the state of the node as a whole.
func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	answer(w, s.nodeStatus(r.Context()))
}

func (s *Server) nodeStatus(ctx context.Context) *api.NodeStatus {
	out := s.backend.Node(ctx)
	out.Node, out.Version, out.Started = s.cfg.Node, s.cfg.Version, s.began
	out.RootDir, out.Runtime.Endpoint, out.Pods = s.cfg.RootDir, s.cfg.Endpoint, map[string]int{}
	refused := map[string]bool{}
	for _, v := range s.backend.Validated() {
		if v.Accepted {
			out.Manifests.Accepted++
		} else {
			out.Manifests.Refused++
			refused[v.File] = true
		}
	}
	all := s.backend.Pods()
	for _, pod := range all {
		out.Pods[stateOf(pod)]++
	}
	out.Attention = slices.Concat(nodeFaults(&out), manifestFaults(slices.Sorted(maps.Keys(refused))),
		podFaults(all, s.stuckAt))
	return &out
}

// stateOf returns the state in which a pod is counted.
func stateOf(pod *v1.Pod) string {
	switch {
	case pods.Terminal(pod.Status.Phase) && !stoppedPod(pod):
		return string(pod.Status.Phase)
	case pod.DeletionTimestamp != nil:
		return podTerminating
	case stoppedPod(pod):
		return podStopped
	case pod.Status.Phase != v1.PodRunning:
		return string(v1.PodPending)
	}
	if ready := conditionOf(pod, v1.PodReady); ready == nil || ready.Status != v1.ConditionTrue {
		return podNotReady
	}
	return podRunning
}

// stoppedPod reports whether an operator has stopped the pod. Its containers may still end.
func stoppedPod(pod *v1.Pod) bool {
	return pod.Status.Reason == pods.ReasonStopped && !pods.FromAPI(pod)
}

// nodeFaults says what about the node itself needs a person.
func nodeFaults(st *api.NodeStatus) []string {
	var out []string
	switch rt := &st.Runtime; {
	case rt.SilentSince != nil:
		out = append(out, fmt.Sprintf("the container runtime at %s does not answer since %s: %s", rt.Endpoint,
			rt.SilentSince.Local().Format(time.DateTime), rt.Error))
	case rt.Error != "":
		out = append(out, rt.Error)
	default:
		out = append(out, rt.Faults...)
	}
	if c := st.Cluster; c != nil && c.Late {
		since := "at all"
		if !c.Renewed.IsZero() {
			since = "since " + c.Renewed.Local().Format(time.DateTime)
		}
		out = append(out, fmt.Sprintf("the API server %s has not accepted the node's lease %s", c.Server, since))
	}
	if len(st.Pressure) > 0 {
		out = append(out, fmt.Sprintf(`the node runs short (%s): pods are evicted, and new ones refused: see "berth events"`,
			strings.Join(st.Pressure, ", ")))
	}
	if st.Drain.State != "" && st.Drain.State != api.Open {
		out = append(out, `the node is drained: pods run again after "berth drain --undo"`)
	}
	return out
}

// manifestFaults names the refused manifests.
func manifestFaults(files []string) []string {
	if len(files) == 0 {
		return nil
	}
	return []string{fmt.Sprintf(`refused manifests: %s: see "berth manifests"`, strings.Join(some(files), ", "))}
}

// maxNamed is how many things of one kind are named.
const maxNamed = 10

// some returns the first names, and how many more there are.
func some(names []string) []string {
	if len(names) <= maxNamed {
		return names
	}
	return append(names[:maxNamed:maxNamed], fmt.Sprintf("and %d more", len(names)-maxNamed))
}

// podFaults names the pods that do not come up by themselves, or only if something changes: a
// container cannot be made or ends again and again, an image cannot be pulled, a step before that
// fails, or a manifest's pod has failed. Failed pods of an API server are the concern of the
// cluster. stuckAt says which step of a pod fails.
func podFaults(all []*v1.Pod, stuckAt func(*v1.Pod) string) []string {
	var out []string
	for _, pod := range all {
		if stoppedPod(pod) {
			continue
		}
		why := ""
		if pod.Status.Phase == v1.PodFailed && !pods.FromAPI(pod) {
			why = joinWords(": ", "Failed", pod.Status.Reason)
		}
		for _, c := range everyStatus(pod) {
			if w := c.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" &&
				why == "" && !pods.Terminal(pod.Status.Phase) {
				why = fmt.Sprintf("container %s: %s", c.Name, w.Reason)
			}
		}
		if why == "" && pod.Status.Phase == v1.PodPending {
			why = stuckAt(pod)
		}
		if why != "" {
			out = append(out, fmt.Sprintf(`pod %s/%s: %s: see "berth why %[1]s/%[2]s"`, pod.Namespace, pod.Name, why))
		}
	}
	return some(out)
}

// maxStuck bounds the text about a step that fails, in bytes; "berth why" has all of it.
const maxStuck = 160

// stuckAt says which step of a pod fails, and how; empty if none does.
func (s *Server) stuckAt(pod *v1.Pod) string {
	line, _ := s.backend.Timeline(pod.UID)
	at := obstacle(line)
	if at == nil || at.Outcome != timeline.Failed || at.Step == timeline.StepObserve {
		return ""
	}
	message := at.Message
	if len(message) > maxStuck {
		message = strings.ToValidUTF8(message[:maxStuck], "") + "…"
	}
	return fmt.Sprintf("step %s fails: %s", at.Step, message)
}
