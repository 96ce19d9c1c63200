package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/timeline"
	"github.com/berthd/berth/client/api"
)

// why answers with a pod's story and what it waits for. A pod that never came to be because its manifest was refused has a story, too: that.
func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	pod, err := s.find(namespace, name, "")
	if err != nil {
		if m := s.refused(namespace, name); m != nil {
			answer(w, api.Why{
				Namespace: namespace, Name: name, Status: "Refused", Steps: []api.Step{}, Manifest: m,
				WaitsFor: fmt.Sprintf("its manifest %s to be corrected: %s", m.File, m.Message),
			})
			return
		}
		failWith(w, err)
		return
	}
	story, _ := s.backend.Story(pod.UID)
	out := Explain(pod, story)
	if out.WaitsFor != "" && (out.LastError == nil || out.LastError.Overcome) {
		if warning := lastWarning(s.backend.Events(), pod); warning != nil {
			out.LastError = warning
		}
	}
	for _, v := range s.backend.Verdicts() {
		if !v.Accepted && v.Kind == "Pod" && v.Namespace == namespace && v.Name == name {
			m := ManifestOf(v)
			out.Manifest = &m // its last good version runs
		}
	}
	answer(w, out)
}

// refused returns the verdict on a pod's manifest that was not accepted.
func (s *Server) refused(namespace, name string) *api.Manifest {
	for _, v := range s.backend.Verdicts() {
		if v.Accepted || v.Name == "" || v.Kind != "Pod" || v.Namespace != "" && v.Namespace != namespace {
			continue
		}
		if v.Name == name || v.Name+"-"+strings.ToLower(s.cfg.Node) == name {
			m := ManifestOf(v)
			return &m
		}
	}
	return nil
}

// Explain says what a pod waits for, from its status and its worker's story. It is pure.
func Explain(pod *v1.Pod, story Story) api.Why {
	summary := api.Summarize(pod)
	out := api.Why{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Status: summary.Status, Phase: story.Phase,
		Steps: make([]api.Step, 0, len(story.Entries)),
	}
	for _, e := range story.Entries {
		out.Steps = append(out.Steps, api.Step{
			Step: e.Step, Begin: e.Begin, End: e.End, Last: e.Last, Count: e.Count, Outcome: string(e.Outcome), Message: e.Message,
		})
	}
	out.LastError = lastError(story.Entries)
	if !story.RetryAt.IsZero() {
		out.NextRetry = &story.RetryAt
	}
	if story.Successor {
		out.WaitsFor = "its predecessor of the same name to be gone"
		return out
	}
	if at := obstacle(story); at != nil {
		out.Step, out.WaitsFor = at.Step, at.Message
		if at.Outcome == timeline.Failed {
			out.WaitsFor = fmt.Sprintf("%s to succeed: %s", at.Step, at.Message)
		}
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	if out.WaitsFor == "" && !ended && pod.DeletionTimestamp == nil {
		out.WaitsFor = unready(pod)
	}
	return out
}

// obstacle returns the first step of the latest pass that did not end well, nil if all did. A step that the latest pass did not come to is not among
// them: its last outcome is of an earlier pass.
func obstacle(story Story) *timeline.Entry {
	ladder := story.Ladder
	if story.Phase != "Running" {
		ladder = nil
		for _, step := range slices.Backward(story.Ladder) {
			ladder = append(ladder, RemovePrefix+step)
		}
	}
	current := map[string]*timeline.Entry{}
	for i := range story.Entries {
		current[story.Entries[i].Step] = &story.Entries[i]
	}
	if e := current["observe"]; e != nil && e.Outcome != timeline.Done && newest(story.Entries, e.Last) {
		return e
	}
	var began time.Time
	for _, step := range ladder {
		e := current[step]
		if e == nil {
			continue
		}
		if began.IsZero() {
			began = e.Last
		}
		if e.Outcome != timeline.Done && !e.Last.Before(began) {
			return e
		}
	}
	return nil
}

// newest reports whether nothing was noted later.
func newest(entries []timeline.Entry, at time.Time) bool {
	for i := range entries {
		if entries[i].Last.After(at) {
			return false
		}
	}
	return true
}

// lastError returns the latest failure in the story, and whether its step has ended well since.
func lastError(entries []timeline.Entry) *api.Failure {
	var found *timeline.Entry
	for i := range entries {
		if e := &entries[i]; e.Outcome == timeline.Failed && (found == nil || e.Last.After(found.Last)) {
			found = e
		}
	}
	if found == nil {
		return nil
	}
	out := &api.Failure{Step: found.Step, Message: found.Message, Last: found.Last, Count: found.Count}
	for i := range entries {
		if e := &entries[i]; e.Step == found.Step && e.Outcome != timeline.Failed && e.Last.After(found.Last) {
			out.Overcome = true
		}
	}
	return out
}

// lastWarning returns the latest warning about the pod: what a container or a pull failed with is no step's failure. Warnings about name servers are
// about every pod of the node, and keep none from running.
func lastWarning(events []v1.Event, pod *v1.Pod) *api.Failure {
	for i := range slices.Backward(events) {
		e := &events[i]
		if e.Type != v1.EventTypeWarning || e.InvolvedObject.UID != pod.UID || e.Reason == "MissingClusterDNS" || strings.HasPrefix(e.Reason, "DNS") {
			continue
		}
		return &api.Failure{Step: e.Reason, Message: e.Message, Last: e.LastTimestamp.Time, Count: int(e.Count)}
	}
	return nil
}

// unready says what keeps a pod whose steps are all done from being ready; empty if nothing does.
func unready(pod *v1.Pod) string {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if text := containerWaits(pod, &list[i]); text != "" {
				return text
			}
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodReady && c.Status != v1.ConditionTrue && c.Message != "" {
			return c.Message
		}
	}
	if pod.Status.Phase == v1.PodPending && len(pod.Status.ContainerStatuses) == 0 {
		return "its first pass"
	}
	return ""
}

func containerWaits(pod *v1.Pod, c *v1.ContainerStatus) string {
	spec := findContainer(pod, c.Name)
	switch state := c.State; {
	case state.Waiting != nil && state.Waiting.Message != "":
		return fmt.Sprintf("container %s: %s: %s", c.Name, state.Waiting.Reason, state.Waiting.Message)
	case state.Waiting != nil:
		return fmt.Sprintf("container %s: %s", c.Name, state.Waiting.Reason)
	case state.Running == nil || c.Ready || spec == nil:
		return ""
	case spec.StartupProbe != nil && (c.Started == nil || !*c.Started):
		return fmt.Sprintf("container %s to pass its startup probe", c.Name)
	case spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil && (c.Started == nil || !*c.Started):
		return fmt.Sprintf("the postStart hook of container %s to end", c.Name)
	case spec.ReadinessProbe != nil:
		return fmt.Sprintf("container %s to pass its readiness probe", c.Name)
	}
	return ""
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
