package source

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/admit"
)

// hints warns of requests that this node never fulfils. Such a pod is accepted, but its admission
// fails, or it runs on another node than its manifest says. asked is the pod with the API's
// defaults and without the defaults of static pods.
func (d Decoder) hints(asked *v1.Pod, e element) []string {
	var out []string
	if name := asked.Spec.NodeName; name != "" && name != d.NodeName {
		out = append(out,
			e.warning("spec.nodeName",
				"has no effect: a pod of a manifest runs on the node that reads it, here "+d.NodeName))
	}
	for _, where := range []struct{ path, os string }{
		{"metadata.labels[" + v1.LabelOSStable + "]", asked.Labels[v1.LabelOSStable]}, {"spec.os.name", osOf(asked)},
	} {
		if where.os != "" && where.os != string(v1.Linux) {
			out = append(out, e.warning(where.path, "the pod will fail: this node runs "+string(v1.Linux)))
		}
	}
	out = append(out, e.fractions(asked)...)
	for _, r := range admit.Oversized(asked, d.Allocatable) {
		out = append(out, e.warning("spec", "the pod will fail on this machine: "+r.Reason+": "+r.Message))
	}
	return out
}

func osOf(pod *v1.Pod) string {
	if pod.Spec.OS == nil {
		return ""
	}
	return string(pod.Spec.OS.Name)
}

// portLines returns the lines of the fields with the pod's host ports.
func (e element) portLines(pod *v1.Pod) map[string]int {
	var lines map[string]int
	for _, path := range admit.PortFields(pod) {
		if lines == nil {
			lines = map[string]int{}
		}
		lines[path] = e.line(path)
	}
	return lines
}

// portFault returns the fault of a host port that a pod decoded earlier already has; an agent ends
// the second pod. It returns nil if the ports are free.
func portFault(item *Item, before []*v1.Pod) *Fault {
	for _, other := range before {
		if field, taken := admit.PortTaken(item.Pod, other); taken != "" {
			return &Fault{Line: item.Lines[field], Field: field, Message: field + ": " + taken}
		}
	}
	return nil
}
