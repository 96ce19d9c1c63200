package main

import (
	"fmt"
	"io"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/runtimeclass"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/internal/pods"
)

// podChange is what happens to the pod of a manifest.
type podChange struct {
	// accepted and rejected say it for a pod that the agent accepts, and for one that it refuses.
	accepted, rejected string
	// changes are the fields that are the reason.
	changes []pods.Change
	// starts is true if the pod would be started.
	starts bool
	// refusal is why the agent would refuse the pod; empty if it would not.
	refusal string
}

// write writes the change of the pod with a name.
func (c *podChange) write(w io.Writer, name string) {
	switch {
	case c.refusal != "":
		fmt.Fprintf(w, "pod %s: %s: %s\n", name, c.rejected, c.refusal)
	case len(c.changes) > 0:
		fmt.Fprintf(w, "pod %s: %s:\n", name, c.accepted)
	default:
		fmt.Fprintf(w, "pod %s: %s\n", name, c.accepted)
	}
	for _, change := range c.changes {
		fmt.Fprintf(w, "  %s\n", show.Clean(change.String()))
	}
}

// compare returns what happens to the pod of a file.
func (d *differ) compare(wanted *v1.Pod, file string) *podChange {
	i := slices.IndexFunc(d.pods, func(p v1.Pod) bool { return p.Namespace == wanted.Namespace && p.Name == wanted.Name })
	if i < 0 {
		return &podChange{accepted: "is new and would be started", rejected: "is new and would be refused", starts: true}
	}
	has := &d.pods[i]
	// The values from a RuntimeClass are not in the manifest.
	wanted = runtimeclass.Keep(wanted, has)
	changes := pods.Changes(has, wanted)
	stops := fmt.Sprintf("would be stopped (within %ds)", graceOf(has))
	again := &podChange{
		accepted: stops + " and started anew",
		rejected: stops + ", and what replaces it would be refused",
		changes:  changes,
		starts:   true,
	}
	switch {
	case len(changes) == 0 && d.sameUID(wanted, has, file):
		return &podChange{accepted: "does not change", rejected: "does not change, and is refused"}
	case len(changes) == 0:
		again.accepted += ": " + d.otherUID(has, file)
	case d.settings.Resizes && has.Status.Phase == v1.PodRunning && source.Resizable(has, wanted) == nil:
		const resized = "would be resized in place"
		return &podChange{accepted: resized, rejected: resized + ", and is refused", changes: changes}
	}
	return again
}

// file returns the file from which the agent has a pod; empty if the agent does not know it.
func (d *differ) file(pod *v1.Pod) string {
	i := slices.IndexFunc(d.results, func(m api.Manifest) bool {
		return m.Accepted && m.Kind == "Pod" && m.Namespace == pod.Namespace && m.Name == pod.Name
	})
	if i < 0 {
		return ""
	}
	return d.results[i].File
}

// gone returns a line for each pod that no manifest of the agent's directory has any more.
func (d *differ) gone() (lines []string) {
	said := map[string]bool{}
	for i := range d.pods {
		p := &d.pods[i]
		name := pods.FullName(p)
		if d.changes[name] != nil || said[name] || pods.Source(p) != pods.SourceFile || p.DeletionTimestamp != nil {
			continue
		}
		said[name] = true // a pod and its predecessor have the same name
		if slices.ContainsFunc(d.results, func(m api.Manifest) bool {
			return m.Kept && m.Kind == "Pod" && m.Namespace+"/"+m.Name == name
		}) {
			lines = append(lines, fmt.Sprintf("pod %s: stays as it is, since its manifest is refused", name))
			continue
		}
		d.admission.Leaving = append(d.admission.Leaving, name)
		lines = append(lines, fmt.Sprintf("pod %s: is in no manifest and would be stopped (within %ds)", name, graceOf(p)))
	}
	return lines
}

func graceOf(pod *v1.Pod) int64 {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return *s
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

// sameUID reports whether a pod with the same content keeps its UID. The agent and a kubelet
// compute the UID of a static pod without metadata.uid from the manifest and the path of its file.
// So a renamed file makes another pod. Standard input has no path, and stands for the old file.
func (d *differ) sameUID(wanted, has *v1.Pod, file string) bool {
	hash := has.Annotations[pods.AnnotationHash]
	return hash == "" || file == source.Stdin || hash == wanted.Annotations[pods.AnnotationHash]
}

// otherUID says why a pod with the same content gets another UID.
func (d *differ) otherUID(has *v1.Pod, file string) string {
	if old, now := d.file(has), d.installed(file); old != "" && old != now {
		return fmt.Sprintf("its manifest would be %s and not %s, and the path of the file is part of the UID, as in a "+
			"kubelet (metadata.uid in the manifest sets the UID)", now, old)
	}
	return "its UID changes, which is a hash over the manifest and the path of its file, as in a kubelet"
}
