package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/objects"
	"github.com/berthd/berth/agent/source"
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
	if out.WaitsFor != "" {
		out.WaitsFor += refusedObjects(s.backend.Verdicts(), pod)
	}
	out.Manifest = newerRefused(s.backend.Verdicts(), pod) // its last good version runs
	answer(w, out)
}

// refused returns the verdict on a pod's manifest that was not accepted.
func (s *Server) refused(namespace, name string) *api.Manifest {
	for _, v := range s.backend.Verdicts() {
		if !v.Accepted && v.Kind == "Pod" && meant(&v, namespace, name, s.cfg.Node) {
			m := ManifestOf(v)
			return &m
		}
	}
	return nil
}

// meant reports whether a verdict is about the pod of this name. What was refused early has no namespace or no node's name in it yet.
func meant(v *source.Verdict, namespace, name, node string) bool {
	if v.Name == "" || v.Namespace != "" && v.Namespace != namespace {
		return false
	}
	return v.Name == name || v.Name+"-"+strings.ToLower(node) == name
}

// refusedObjects says which of the local objects that a pod uses are in manifests that were refused, and why: what the pod itself can say is only that it does not
// find them. Empty if there are none; else it begins with a semicolon.
func refusedObjects(verdicts []source.Verdict, pod *v1.Pod) string {
	if source.Bound(pod) {
		return ""
	}
	var out strings.Builder
	told := map[string]bool{}
	for ref := range source.References(&pod.Spec) {
		for i := range verdicts {
			v := &verdicts[i]
			if v.Accepted || v.Kind != ref.Kind || v.Name != ref.Name || v.Name == "" || objects.Namespaced(v.Kind) && cmp.Or(v.Namespace, v1.NamespaceDefault) != pod.Namespace {
				continue
			}
			text := fmt.Sprintf("; %s %s is in %s, which is refused: ", v.Kind, v.Name, v.File)
			if v.Line > 0 {
				text += fmt.Sprintf("line %d: ", v.Line)
			}
			if text += v.Text(maxVerdict); !told[text] {
				told[text] = true
				out.WriteString(text)
			}
		}
	}
	return out.String()
}

// maxVerdict bounds, in bytes, what is told of one manifest's faults.
const maxVerdict = 1024

// newerRefused returns the verdict on the newer version of a pod's manifest, if that was refused and the pod is of its last good version; else nil. Of several
// verdicts on the file the one about this pod counts, or else, where the newer version is too wrong to tell whom it is about, the first.
func newerRefused(verdicts []source.Verdict, pod *v1.Pod) *api.Manifest {
	file := ""
	for _, v := range verdicts {
		if v.Accepted && v.Document == 0 && v.UID == pod.UID && v.UID != "" {
			file = v.File // so says a verdict on a version that is kept
		}
	}
	var found *api.Manifest
	for i := range verdicts {
		v := &verdicts[i]
		if v.Accepted || file == "" || v.File != file {
			continue
		}
		about := v.Kind == "Pod" && meant(v, pod.Namespace, pod.Name, pod.Spec.NodeName)
		if m := ManifestOf(*v); about || found == nil {
			found = &m
		}
		if about {
			break
		}
	}
	return found
}

// Explain says what a pod waits for, from its status and its worker's story. It is pure.
func Explain(pod *v1.Pod, story Story) api.Why {
	summary := api.Summarize(pod)
	out := api.Why{
		Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Status: summary.Status, Phase: pod.Status.Phase, WorkerPhase: story.Phase,
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
	if text := overdue(story); text != "" {
		out.Step, out.WaitsFor = story.UnderWay, text
		return out
	}
	if at := obstacle(story); at != nil {
		out.Step, out.WaitsFor = at.Step, at.Message
		if at.Outcome == timeline.Failed {
			out.WaitsFor = fmt.Sprintf("%s to succeed: %s", called(at.Step), at.Message)
		}
	}
	ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	if out.WaitsFor == "" && !ended && pod.DeletionTimestamp == nil {
		out.WaitsFor = unready(pod)
	}
	out.Ended = failedBecause(pod, story.Entries)
	return out
}

// overdueAfter is how long a step may be under way before that is what the pod waits for.
const overdueAfter = time.Second

// overdue says what a pod waits for whose step does not come to its end; empty if none is that late.
func overdue(story Story) string {
	if story.UnderWayFor < overdueAfter {
		return ""
	}
	since := story.UnderWayFor.Round(time.Second)
	switch story.UnderWay {
	case ObserveStep:
		return fmt.Sprintf("the runtime to answer, which has been silent for %s", since)
	case SlotStep:
		return fmt.Sprintf("other pods to start first, for %s", since)
	default:
		name := called(story.UnderWay)
		if name == story.UnderWay {
			name = "step " + name
		}
		return fmt.Sprintf("%s to end, which has taken %s", name, since)
	}
}

// called is how a step is called in a sentence.
func called(step string) string {
	if of, removal := strings.CutPrefix(step, RemovePrefix); removal {
		return "the removal of its " + of
	}
	return step
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
	if e := current[ObserveStep]; e != nil && e.Outcome != timeline.Done && newest(story.Entries, e.Last) {
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
// about every pod of the node, and keep none from running; what a resize waits for, the pod's condition tells. That something is tried again later, is not what it failed with: it counts where there is nothing else.
func lastWarning(events []v1.Event, pod *v1.Pod) *api.Failure {
	var backOff *v1.Event
	for i := range slices.Backward(events) {
		e := &events[i]
		switch {
		case e.Type != v1.EventTypeWarning || e.InvolvedObject.UID != pod.UID || e.Reason == "MissingClusterDNS" || strings.HasPrefix(e.Reason, "DNS"):
		case e.Reason == "ResizeDeferred" || e.Reason == "ResizeInfeasible": // the pod's condition says that, and without the whole spec
		case e.Reason != "BackOff" && e.Message != "Error: ImagePullBackOff" && e.Message != "Error: ErrImagePull":
			return failureOf(e)
		case backOff == nil:
			backOff = e
		}
	}
	if backOff == nil {
		return nil
	}
	return failureOf(backOff)
}

// failureOf is what a warning tells.
func failureOf(e *v1.Event) *api.Failure {
	return &api.Failure{Step: e.Reason, Container: api.ContainerOf(e), Message: e.Message, Last: e.LastTimestamp.Time, Count: int(e.Count)}
}
