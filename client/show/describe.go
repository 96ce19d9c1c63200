package show

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/plural"
	"github.com/berthd/berth/internal/pods"
)

// printer writes indented lines in two columns.
type printer struct{ w io.Writer }

// labelWidth is the width of the first column.
const labelWidth = 18

func (p printer) line(indent int, label, format string, args ...any) {
	text := Clean(fmt.Sprintf(format, args...))
	lead := strings.Repeat("  ", indent) + label + ":"
	if text == "" {
		fmt.Fprintln(p.w, lead)
		return
	}
	fmt.Fprintf(p.w, "%-*s %s\n", labelWidth-1, lead, text)
}

// pairs writes a map, one line for each key.
func (p printer) pairs(indent int, label string, m map[string]string, sep string) {
	if len(m) == 0 {
		p.line(indent, label, "<none>")
		return
	}
	lead := strings.Repeat("  ", indent) + label + ":"
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(p.w, "%-*s %s%s%s\n", labelWidth-1, lead, k, sep, Clean(m[k]))
		lead = ""
	}
}

// Describe writes everything about a pod: its events, and what it waits for.
func Describe(w io.Writer, pod *v1.Pod, events []v1.Event, why *api.Why, now time.Time) error {
	p := printer{w}
	p.head(pod, now)
	p.containers("Init Containers", pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	p.containers("Containers", pod.Spec.Containers, pod.Status.ContainerStatuses)
	p.containers("Ephemeral Containers", ephemeral(pod), pod.Status.EphemeralContainerStatuses)
	p.conditions(pod)
	p.volumes(pod)
	p.line(0, "QoS Class", "%s", string(pod.Status.QOSClass))
	p.pairs(0, "Node-Selectors", pod.Spec.NodeSelector, "=")
	if err := p.events(events, now); err != nil {
		return err
	}
	if why == nil {
		return nil
	}
	if why.Manifest != nil {
		p.line(0, "Manifest", "%s", refusedManifest(why.Manifest, true))
	}
	p.line(0, "Waits for", "%s", cmp.Or(why.WaitsFor, "nothing"))
	if why.Ended != "" {
		p.line(0, "Failed", "%s", why.Ended)
	}
	if why.NextRetry != nil {
		p.line(1, "Next retry", "in %s", Took(max(why.NextRetry.Sub(now), 0)))
	}
	if e := why.LastError; e != nil && !e.Overcome {
		p.line(1, "Last error", "%s, %s ago%s: %s", e.Step, Age(now, e.Last), times(e.Count), e.Message)
	}
	return nil
}

// ephemeral returns the pod's ephemeral containers as regular ones.
func ephemeral(pod *v1.Pod) []v1.Container {
	out := make([]v1.Container, 0, len(pod.Spec.EphemeralContainers))
	for _, c := range pod.Spec.EphemeralContainers {
		out = append(out, v1.Container(c.EphemeralContainerCommon))
	}
	return out
}

// earliest returns the earlier time: the deletion timestamp of a pod is the end of its grace
// period.
func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (p printer) head(pod *v1.Pod, now time.Time) {
	p.line(0, "Name", "%s", pod.Name)
	p.line(0, "Namespace", "%s", pod.Namespace)
	if pod.Spec.Priority != nil {
		p.line(0, "Priority", "%d", *pod.Spec.Priority)
	}
	if pod.Spec.PriorityClassName != "" {
		p.line(0, "Priority Class", "%s", pod.Spec.PriorityClassName)
	}
	if pod.Spec.ServiceAccountName != "" {
		p.line(0, "Service Account", "%s", pod.Spec.ServiceAccountName)
	}
	node := cmp.Or(pod.Spec.NodeName, "<none>")
	if pod.Status.HostIP != "" {
		node += "/" + pod.Status.HostIP
	}
	p.line(0, "Node", "%s", node)
	if pod.Status.StartTime != nil {
		p.line(0, "Start Time", "%s", stamp(*pod.Status.StartTime))
	}
	p.pairs(0, "Labels", pod.Labels, "=")
	p.pairs(0, "Annotations", pod.Annotations, ": ")
	p.line(0, "UID", "%s", pod.UID)
	if pod.DeletionTimestamp != nil && !pods.Terminal(pod.Status.Phase) {
		p.line(0, "Status", "Terminating (lasts %s)", Age(now, earliest(now, pod.DeletionTimestamp.Time)))
		if grace := pod.DeletionGracePeriodSeconds; grace != nil {
			p.line(0, "Termination Grace Period", "%ds", *grace)
		}
	} else {
		p.line(0, "Status", "%s", string(pod.Status.Phase))
	}
	if pod.Status.Reason != "" {
		p.line(0, "Reason", "%s", pod.Status.Reason)
	}
	if pod.Status.Message != "" {
		p.line(0, "Message", "%s", pod.Status.Message)
	}
	p.line(0, "IP", "%s", pod.Status.PodIP)
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	p.line(0, "IPs", "%s", cmp.Or(strings.Join(ips, ", "), "<none>"))
}

func stamp(t metav1.Time) string { return t.Format(time.RFC1123Z) }

func (p printer) conditions(pod *v1.Pod) {
	if len(pod.Status.Conditions) == 0 {
		return
	}
	p.line(0, "Conditions", "")
	for _, c := range pod.Status.Conditions {
		text := string(c.Status)
		if c.Reason != "" {
			text += " " + c.Reason
		}
		if c.Message != "" {
			text += ": " + c.Message
		}
		fmt.Fprintf(p.w, "  %-27s %s\n", c.Type, Clean(text))
	}
}

func (p printer) volumes(pod *v1.Pod) {
	if len(pod.Spec.Volumes) == 0 {
		p.line(0, "Volumes", "<none>")
		return
	}
	p.line(0, "Volumes", "")
	for i := range pod.Spec.Volumes {
		p.line(1, pod.Spec.Volumes[i].Name, "%s", volume(&pod.Spec.Volumes[i].VolumeSource))
	}
}

func volume(s *v1.VolumeSource) string {
	switch {
	case s.EmptyDir != nil:
		text := "EmptyDir"
		if s.EmptyDir.Medium != "" {
			text += " on " + string(s.EmptyDir.Medium)
		}
		if s.EmptyDir.SizeLimit != nil {
			text += ", at most " + s.EmptyDir.SizeLimit.String()
		}
		return text
	case s.HostPath != nil:
		return "HostPath " + s.HostPath.Path
	case s.ConfigMap != nil:
		return "ConfigMap " + s.ConfigMap.Name
	case s.Secret != nil:
		return "Secret " + s.Secret.SecretName
	case s.DownwardAPI != nil:
		return "DownwardAPI"
	case s.Projected != nil:
		return "Projected of " + plural.Of(len(s.Projected.Sources), "source")
	case s.PersistentVolumeClaim != nil:
		return "PersistentVolumeClaim " + s.PersistentVolumeClaim.ClaimName
	case s.Ephemeral != nil:
		return "a PersistentVolumeClaim of the pod's own"
	case s.Image != nil:
		return "Image " + s.Image.Reference
	case s.NFS != nil:
		return "NFS " + s.NFS.Server + ":" + s.NFS.Path
	case s.CSI != nil:
		return "CSI " + s.CSI.Driver
	}
	return "other"
}

func (p printer) events(events []v1.Event, now time.Time) error {
	if len(events) == 0 {
		p.line(0, "Events", "<none>")
		return nil
	}
	p.line(0, "Events", "")
	t := Table{}
	t.Add("Type", "Reason", "Age", "From", "Message")
	t.Add("----", "------", "----", "----", "-------")
	for i := range events {
		e := &events[i]
		age := Age(now, e.LastTimestamp.Time)
		if e.Count > 1 {
			age += fmt.Sprintf(" (x%d over %s)", e.Count, Age(now, e.FirstTimestamp.Time))
		}
		t.Add(e.Type, e.Reason, age, e.Source.Component, e.Message)
	}
	return t.write(p.w, "  ")
}
