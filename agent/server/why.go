package server

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/desired"
	"github.com/berthd/berth/agent/node/hostports"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// why answers with a pod's timeline and what the pod waits for. If a pod's manifest was refused,
// the answer is that refusal.
func (s *Server) why(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	if asked(r, api.Previous) {
		s.previous(w, r)
		return
	}
	pod, err := s.podOf(r)
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
	line, _ := s.backend.Timeline(pod.UID)
	out := Explain(pod, line)
	if out.WaitsFor != "" && (out.LastError == nil || out.LastError.Overcome) {
		if warning := lastWarning(s.backend.Events(), pod); warning != nil {
			out.LastError = warning
		}
	}
	if out.WaitsFor != "" {
		out.WaitsFor = joinWords("; ", out.WaitsFor, failedProbes(s.backend.Events(), pod)) +
			refusedObjects(s.backend.Validated(), pod)
	}
	if out.WaitsFor != "" || out.Ended != "" {
		out.LastChange = lastChange(s.backend.Events(), pod)
	}
	out.Warnings = warningsOf(s.backend.Validated(), pod)
	if out.Ended == "" {
		for _, taken := range hostports.Taken(pod) {
			out.Warnings = append(out.Warnings, taken+": "+hostports.Remedy)
		}
	}
	out.Manifest = newerRefused(s.backend.Validated(), pod) // the last valid version runs
	answer(w, out)
}

// warningsOf returns the warnings about a pod's manifest.
func warningsOf(results []source.Result, pod *v1.Pod) []string {
	for i := range results {
		if v := &results[i]; v.Accepted && v.UID == pod.UID && v.UID != "" {
			return v.Warnings
		}
	}
	return nil
}

// refused returns the validation result of a pod's manifest, if the manifest was refused.
func (s *Server) refused(namespace, name string) *api.Manifest {
	for _, v := range s.backend.Validated() {
		if !v.Accepted && v.Kind == "Pod" && meant(&v, namespace, name, s.cfg.Node) {
			m := ManifestOf(v)
			return &m
		}
	}
	return nil
}

// meant reports whether a validation result is about the pod of this name. A manifest that was
// refused early has no namespace yet, or no node's name in the pod's name.
func meant(v *source.Result, namespace, name, node string) bool {
	if v.Name == "" || v.Namespace != "" && v.Namespace != namespace {
		return false
	}
	return v.Name == name || v.Name+"-"+strings.ToLower(node) == name
}

// refusedObjects says which of the pod's local objects are in manifests that were refused, and why.
// The pod's own status says only that the objects are not found. The result is empty if there are
// none; otherwise it begins with a semicolon.
func refusedObjects(results []source.Result, pod *v1.Pod) string {
	if pods.FromAPI(pod) {
		return ""
	}
	var out strings.Builder
	said := map[string]bool{}
	for ref := range source.References(&pod.Spec) {
		for i := range results {
			v := &results[i]
			if v.Accepted || v.Kind != ref.Kind || v.Name != ref.Name || v.Name == "" ||
				objects.Namespaced(v.Kind) && cmp.Or(v.Namespace, v1.NamespaceDefault) != pod.Namespace {
				continue
			}
			text := fmt.Sprintf("; %s %s is in %s, which is refused: ", v.Kind, v.Name, v.File)
			if v.Line > 0 {
				text += fmt.Sprintf("line %d: ", v.Line)
			}
			if text += v.Text(maxResult); !said[text] {
				said[text] = true
				out.WriteString(text)
			}
		}
	}
	return out.String()
}

// maxResult bounds the text about one manifest's faults, in bytes.
const maxResult = 1024

// newerRefused returns the validation result of the newer version of a pod's manifest, if that
// version was refused and the pod runs the last valid version; otherwise nil. Among several results
// for the file, it prefers the one about this pod. It takes the first one if the newer version has
// too many faults to name a pod.
func newerRefused(results []source.Result, pod *v1.Pod) *api.Manifest {
	file := ""
	for _, v := range results {
		if v.Accepted && v.Document == 0 && v.UID == pod.UID && v.UID != "" {
			file = v.File // the result for a version that is kept says so
		}
	}
	var found *api.Manifest
	for i := range results {
		v := &results[i]
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

// Explain returns what a pod waits for, from its status and its worker's timeline. It is pure.
func Explain(pod *v1.Pod, line timeline.Timeline) api.Why {
	summary := api.Summarize(pod)
	out := api.Why{
		Namespace:   pod.Namespace,
		Name:        pod.Name,
		UID:         pod.UID,
		Status:      summary.Status,
		Phase:       pod.Status.Phase,
		WorkerPhase: line.Phase,
	}
	out.Steps = stepsOf(line.Entries)
	out.LastError = lastError(line.Entries)
	if !line.RetryAt.IsZero() {
		out.NextRetry = &line.RetryAt
	}
	if line.Successor {
		out.WaitsFor = "its predecessor of the same name to be gone"
		return out
	}
	if text := overdue(line); text != "" {
		out.Step, out.WaitsFor = line.UnderWay, text
		return out
	}
	if at := obstacle(line); at != nil {
		out.Step, out.WaitsFor = at.Step, at.Message
		if at.Outcome == timeline.Failed {
			out.WaitsFor = fmt.Sprintf("%s to succeed: %s", called(at.Step), at.Message)
		} else if names := crashed(pod); len(names) > 0 && line.Phase == "Running" {
			// the step only says how long it waits, and not what for
			out.WaitsFor, out.Crashed = cmp.Or(unready(pod), at.Message), names
		}
	}
	if out.WaitsFor != "" && line.Ends != "" {
		out.WaitsFor += "; the pod ends: " + line.Ends
	}
	if pods.Held(pod) {
		switch summary.Status {
		case pods.ReasonStopped:
			out.Step, out.WaitsFor = "", "an operator to start it: "+pod.Status.Message
		case pods.ReasonDrained:
			out.Step, out.WaitsFor = "", `"berth drain --undo": `+pod.Status.Message
		}
		return out
	}
	ended := pods.Terminal(pod.Status.Phase)
	if out.WaitsFor == "" && !ended && pod.DeletionTimestamp == nil {
		out.WaitsFor, out.Crashed = unready(pod), crashed(pod)
	}
	if out.Ended = failedBecause(pod, line.Entries); out.Ended != "" {
		out.Crashed = crashed(pod)
	}
	return out
}

// overdueAfter is how long a step may last before the pod counts as waiting for the step.
const overdueAfter = time.Second

// overdue says which overdue step a pod waits for; empty if no step is overdue.
func overdue(line timeline.Timeline) string {
	if line.UnderWayFor < overdueAfter {
		return ""
	}
	since := line.UnderWayFor.Round(time.Second)
	switch line.UnderWay {
	case timeline.StepObserve:
		return fmt.Sprintf("the runtime to answer, which has been silent for %s", since)
	case timeline.StepSlot:
		return fmt.Sprintf("other pods to start first, for %s", since)
	default:
		name := called(line.UnderWay)
		if name == line.UnderWay {
			name = "step " + name
		}
		return fmt.Sprintf("%s to end, which has taken %s", name, since)
	}
}

// called returns a step's name for a sentence.
func called(step string) string {
	if of, removal := strings.CutPrefix(step, timeline.RemovePrefix); removal {
		return "the removal of its " + of
	}
	return step
}

// obstacle returns the first step of the latest sync that did not succeed; nil if all did. A step
// that the latest sync did not reach does not count, because its last result is from an earlier
// sync.
func obstacle(line timeline.Timeline) *timeline.Entry {
	steps := line.Steps
	if line.Phase != "Running" {
		steps = nil
		for _, step := range slices.Backward(line.Steps) {
			steps = append(steps, timeline.RemovePrefix+step)
		}
	}
	current := map[string]*timeline.Entry{}
	for i := range line.Entries {
		current[line.Entries[i].Step] = &line.Entries[i]
	}
	if e := current[timeline.StepObserve]; e != nil && e.Outcome != timeline.Done && newest(line.Entries, e.Last) {
		return e
	}
	var began time.Time
	for _, step := range steps {
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

// newest reports whether no entry is later than at.
func newest(entries []timeline.Entry, at time.Time) bool {
	for i := range entries {
		if entries[i].Last.After(at) {
			return false
		}
	}
	return true
}

// lastError returns the latest failure in the timeline, and whether its step has succeeded since.
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

// lastWarning returns the latest warning about the pod, because the failure of a container or a
// pull is not a step's failure. It ignores warnings about name servers, which are about every pod
// of the node and keep none from running, and warnings about a resize, which the pod's condition
// reports. A warning that something is tried again later counts only if there is no other, because
// it does not say what failed.
func lastWarning(events []v1.Event, pod *v1.Pod) *api.Failure {
	var backOff *v1.Event
	for i := range slices.Backward(events) {
		e := &events[i]
		switch {
		case e.Type != v1.EventTypeWarning || e.InvolvedObject.UID != pod.UID || e.Reason == "MissingClusterDNS" ||
			strings.HasPrefix(e.Reason, "DNS") || e.Reason == hostports.ReasonTaken:
		case e.Reason == "ResizeDeferred" ||
			// The pod's condition reports this, without the whole spec.
			e.Reason == "ResizeInfeasible":
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

// lastChange returns what somebody last changed about the pod, by the events; nil if nobody did.
func lastChange(events []v1.Event, pod *v1.Pod) *api.Edit {
	for _, e := range slices.Backward(events) {
		if e.InvolvedObject.UID == pod.UID && (e.Reason == desired.ManifestChanged || e.Reason == desired.ObjectChanged) {
			return &api.Edit{Message: e.Message, At: e.LastTimestamp.Time}
		}
	}
	return nil
}

// failureOf converts a warning.
func failureOf(e *v1.Event) *api.Failure {
	return &api.Failure{
		Step:      e.Reason,
		Container: api.ContainerOf(e),
		Message:   e.Message,
		Last:      e.LastTimestamp.Time,
		Count:     int(e.Count),
	}
}
