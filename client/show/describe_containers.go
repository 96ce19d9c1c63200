package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

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
		probe.InitialDelaySeconds, probe.TimeoutSeconds, probe.PeriodSeconds, probe.SuccessThreshold,
		probe.FailureThreshold)
}

func probeAction(h *v1.ProbeHandler) string {
	switch {
	case h.Exec != nil:
		return fmt.Sprintf("exec %v", h.Exec.Command)
	case h.HTTPGet != nil:
		return fmt.Sprintf("http-get %s://%s:%s%s", strings.ToLower(string(h.HTTPGet.Scheme)), h.HTTPGet.Host,
			h.HTTPGet.Port.String(), h.HTTPGet.Path)
	case h.TCPSocket != nil:
		return fmt.Sprintf("tcp-socket %s:%s", h.TCPSocket.Host, h.TCPSocket.Port.String())
	case h.GRPC != nil:
		return fmt.Sprintf("grpc <pod>:%d", h.GRPC.Port)
	}
	return "unknown"
}

// environment writes a container's environment. It writes only the source of secrets, never their
// values.
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
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>", from.ConfigMapKeyRef.Key,
			from.ConfigMapKeyRef.Name)
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>", from.SecretKeyRef.Key, from.SecretKeyRef.Name)
	case from.FileKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of file '%s' in volume '%s'>", from.FileKeyRef.Key,
			from.FileKeyRef.Path, from.FileKeyRef.VolumeName)
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
