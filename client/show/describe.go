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
)

// printer writes indented lines in two columns.
type printer struct{ w io.Writer }

// labelWidth is where the second column begins.
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

// pairs writes a map, a line for each key.
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

// Describe writes all about a pod, its events, and what it waits for.
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

// ephemeral returns the pod's ephemeral containers as others.
func ephemeral(pod *v1.Pod) []v1.Container {
	out := make([]v1.Container, 0, len(pod.Spec.EphemeralContainers))
	for _, c := range pod.Spec.EphemeralContainers {
		out = append(out, v1.Container(c.EphemeralContainerCommon))
	}
	return out
}

// earliest returns the earlier one: the deletion of a pod is dated at the end of its grace.
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
	if pod.DeletionTimestamp != nil && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
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

func (p printer) containers(title string, containers []v1.Container, statuses []v1.ContainerStatus) {
	if len(containers) == 0 {
		return
	}
	p.line(0, title, "")
	for i := range containers {
		var status *v1.ContainerStatus
		for j := range statuses {
			if statuses[j].Name == containers[i].Name {
				status = &statuses[j]
			}
		}
		p.container(&containers[i], status)
	}
}

func (p printer) container(c *v1.Container, status *v1.ContainerStatus) {
	p.line(1, c.Name, "")
	if status != nil {
		p.line(2, "Container ID", "%s", status.ContainerID)
	}
	p.line(2, "Image", "%s", c.Image)
	if status != nil {
		p.line(2, "Image ID", "%s", status.ImageID)
	}
	var ports, hostPorts []string
	for _, port := range c.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol))
		hostPorts = append(hostPorts, fmt.Sprintf("%d/%s", port.HostPort, port.Protocol))
	}
	p.line(2, "Port", "%s", cmp.Or(strings.Join(ports, ", "), "<none>"))
	p.line(2, "Host Port", "%s", cmp.Or(strings.Join(hostPorts, ", "), "<none>"))
	p.words("Command", c.Command)
	p.words("Args", c.Args)
	if c.RestartPolicy != nil {
		p.line(2, "Restart Policy", "%s", *c.RestartPolicy)
	}
	if status != nil {
		p.state("State", status.State)
		if status.LastTerminationState.Terminated != nil {
			p.state("Last State", status.LastTerminationState)
		}
		p.line(2, "Ready", "%s", boolWord(status.Ready))
		p.line(2, "Restart Count", "%d", status.RestartCount)
	}
	p.resources("Limits", c.Resources.Limits)
	p.resources("Requests", c.Resources.Requests)
	p.probe("Liveness", c.LivenessProbe)
	p.probe("Readiness", c.ReadinessProbe)
	p.probe("Startup", c.StartupProbe)
	p.environment(c)
	p.mounts(c.VolumeMounts)
}

func boolWord(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func (p printer) words(label string, words []string) {
	if len(words) == 0 {
		return
	}
	p.line(2, label, "")
	for _, word := range words {
		for line := range strings.Lines(word) {
			fmt.Fprintf(p.w, "      %s\n", Clean(line))
		}
	}
}

func (p printer) state(label string, s v1.ContainerState) {
	switch {
	case s.Running != nil:
		p.line(2, label, "Running")
		p.line(3, "Started", "%s", stamp(s.Running.StartedAt))
	case s.Terminated != nil:
		t := s.Terminated
		p.line(2, label, "Terminated")
		if t.Reason != "" {
			p.line(3, "Reason", "%s", t.Reason)
		}
		if t.Message != "" {
			p.line(3, "Message", "%s", t.Message)
		}
		p.line(3, "Exit Code", "%d", t.ExitCode)
		if t.Signal != 0 {
			p.line(3, "Signal", "%d", t.Signal)
		}
		p.line(3, "Started", "%s", stamp(t.StartedAt))
		p.line(3, "Finished", "%s", stamp(t.FinishedAt))
	default:
		p.line(2, label, "Waiting")
		if s.Waiting == nil {
			return
		}
		if s.Waiting.Reason != "" {
			p.line(3, "Reason", "%s", s.Waiting.Reason)
		}
		if s.Waiting.Message != "" {
			p.line(3, "Message", "%s", s.Waiting.Message)
		}
	}
}

func (p printer) resources(label string, list v1.ResourceList) {
	if len(list) == 0 {
		return
	}
	p.line(2, label, "")
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		p.line(3, string(name), "%s", q.String())
	}
}

func (p printer) probe(label string, probe *v1.Probe) {
	if probe == nil {
		return
	}
	p.line(2, label, "%s delay=%ds timeout=%ds period=%ds #success=%d #failure=%d", probeAction(&probe.ProbeHandler),
		probe.InitialDelaySeconds, probe.TimeoutSeconds, probe.PeriodSeconds, probe.SuccessThreshold, probe.FailureThreshold)
}

func probeAction(h *v1.ProbeHandler) string {
	switch {
	case h.Exec != nil:
		return fmt.Sprintf("exec %v", h.Exec.Command)
	case h.HTTPGet != nil:
		return fmt.Sprintf("http-get %s://%s:%s%s", strings.ToLower(string(h.HTTPGet.Scheme)), h.HTTPGet.Host, h.HTTPGet.Port.String(), h.HTTPGet.Path)
	case h.TCPSocket != nil:
		return fmt.Sprintf("tcp-socket %s:%s", h.TCPSocket.Host, h.TCPSocket.Port.String())
	case h.GRPC != nil:
		return fmt.Sprintf("grpc <pod>:%d", h.GRPC.Port)
	}
	return "unknown"
}

// environment writes a container's environment; of secrets only where they come from.
func (p printer) environment(c *v1.Container) {
	for _, from := range c.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			p.line(2, "Environment From", "ConfigMap %s", from.ConfigMapRef.Name)
		case from.SecretRef != nil:
			p.line(2, "Environment From", "Secret %s", from.SecretRef.Name)
		}
	}
	if len(c.Env) == 0 {
		p.line(2, "Environment", "<none>")
		return
	}
	p.line(2, "Environment", "")
	for i := range c.Env {
		p.line(3, c.Env[i].Name, "%s", envValue(&c.Env[i]))
	}
}

func envValue(e *v1.EnvVar) string {
	from := e.ValueFrom
	switch {
	case from == nil:
		return e.Value
	case from.FieldRef != nil:
		return fmt.Sprintf("(%s:%s)", from.FieldRef.APIVersion, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return fmt.Sprintf("(%s)", from.ResourceFieldRef.Resource)
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>", from.SecretKeyRef.Key, from.SecretKeyRef.Name)
	case from.FileKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of file '%s' in volume '%s'>", from.FileKeyRef.Key, from.FileKeyRef.Path, from.FileKeyRef.VolumeName)
	}
	return ""
}

func (p printer) mounts(mounts []v1.VolumeMount) {
	if len(mounts) == 0 {
		p.line(2, "Mounts", "<none>")
		return
	}
	p.line(2, "Mounts", "")
	for _, m := range mounts {
		flags := "rw"
		if m.ReadOnly {
			flags = "ro"
		}
		if m.SubPath != "" {
			flags += ",path=\"" + m.SubPath + "\""
		}
		if m.SubPathExpr != "" {
			flags += ",path=\"" + m.SubPathExpr + "\""
		}
		fmt.Fprintf(p.w, "      %s from %s (%s)\n", Clean(m.MountPath), m.Name, Clean(flags))
	}
}

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
		return fmt.Sprintf("Projected of %d sources", len(s.Projected.Sources))
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
