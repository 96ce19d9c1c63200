package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Decide returns what a pod that should run needs now.
//
// It walks the pod's ladder: the sandbox; the init containers one after the other, sidecars among them; the app containers. A container is
// looked at by its latest incarnation. What is busy (being stopped, running its postStart hook) is left alone, and what has to be stopped is
// stopped before its successor is asked for.
func Decide(in Input) Actions {
	d := decision{Input: in}
	d.garbage()
	if !d.sandbox() {
		return d.Actions
	}
	if d.initContainers() {
		d.appContainers()
	}
	d.ephemeralContainers()
	return d.Actions
}

// decision carries the input and the growing result.
type decision struct {
	Input
	Actions
	// wanted counts containers that run, start or wait to start: with none, the pod is finished.
	wanted int
}

// sandbox decides about the sandbox and reports whether its containers are to be looked at now.
func (d *decision) sandbox() bool {
	latest := d.Observed.Sandbox()
	if latest != nil && d.usable(latest) {
		d.SandboxID = latest.Id
		return true
	}
	// The sandbox is gone, or never was. What runs in an old one must end first.
	if running := d.Observed.Running(); len(running) > 0 {
		d.SandboxChanged = true
		for _, c := range running {
			d.kill(c, KillPod, "Pod sandbox changed, it will be killed and re-created.", nil)
		}
		return false
	}
	for _, s := range d.Observed.Sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY || s == latest {
			d.StopSandboxes = append(d.StopSandboxes, s.Id)
		}
	}
	d.SandboxChanged = latest != nil
	if latest != nil && d.allDone() {
		d.Finished = true
		return false
	}
	d.CreateSandbox = true
	if latest != nil {
		d.SandboxAttempt = latest.GetMetadata().GetAttempt() + 1
	}
	return true
}

// usable reports whether a sandbox can hold the pod: it is ready, the only ready one, has the pod's network mode, and has an
// address where it should.
func (d *decision) usable(s *runtimeapi.PodSandboxStatus) bool {
	ready := 0
	for _, other := range d.Observed.Sandboxes {
		if other.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	if ready > 1 || s.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		return false
	}
	mode := s.GetLinux().GetNamespaces().GetOptions().GetNetwork()
	if d.Pod.Spec.HostNetwork {
		return mode == runtimeapi.NamespaceMode_NODE
	}
	return mode != runtimeapi.NamespaceMode_NODE && (s.Network == nil || s.Network.Ip != "")
}

// allDone reports whether the pod's containers have all ended for good, so that a lost sandbox needs no successor. A pod whose policy is Never
// and that ever ran is done, too: it is not run twice.
func (d *decision) allDone() bool {
	ran := false
	for i := range d.Pod.Spec.Containers {
		c := &d.Pod.Spec.Containers[i]
		last := d.Observed.Latest(c.Name)
		if last == nil || !last.Exited() {
			continue
		}
		ran = true
		if d.restarts(c, last) {
			return false
		}
	}
	if ran && d.Pod.Spec.RestartPolicy == v1.RestartPolicyNever {
		return true
	}
	for i := range d.Pod.Spec.Containers {
		last := d.Observed.Latest(d.Pod.Spec.Containers[i].Name)
		if last == nil || !last.Exited() {
			return d.initFailed()
		}
	}
	return ran
}

// initFailed reports whether an init container failed for good.
func (d *decision) initFailed() bool {
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		last := d.Observed.Latest(c.Name)
		if !sidecar(c) && last != nil && last.Exited() && last.ExitCode != 0 && !d.restarts(c, last) {
			return true
		}
	}
	return false
}

// restarts reports whether a container that ended is to run again, by its own or its pod's restart policy.
func (d *decision) restarts(c *v1.Container, last *Container) bool {
	if c.RestartPolicy != nil {
		switch *c.RestartPolicy {
		case v1.ContainerRestartPolicyAlways:
			return true
		case v1.ContainerRestartPolicyNever:
			return false
		default:
			return last.ExitCode != 0
		}
	}
	switch d.Pod.Spec.RestartPolicy {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return last.ExitCode != 0
	default:
		return true
	}
}

// here returns the latest incarnation of a container if it belongs to the sandbox in use.
func (d *decision) here(name string) *Container {
	if c := d.Observed.Latest(name); c != nil && c.SandboxID == d.SandboxID && d.SandboxID != "" {
		return c
	}
	return nil
}

// start asks for a container's next incarnation, or says how long it has to wait.
func (d *decision) start(c *v1.Container, kind Kind) {
	d.wanted++
	last := d.Observed.Latest(c.Name)
	s := Start{Container: c, Kind: kind, Attempt: d.RestartFloor[c.Name]}
	if last != nil {
		s.Previous = last
		next := last.Attempt() + 1
		if last.State == runtimeapi.ContainerState_CONTAINER_CREATED {
			next = last.Attempt() // it never ran: removed first, and made again under its number
		}
		s.Attempt = max(s.Attempt, next)
	}
	if last != nil && last.Exited() {
		if until := d.Backoff[c.Name].Until(time.Unix(0, last.FinishedAt), d.Limits); until.After(d.Now) {
			d.Wait = append(d.Wait, Wait{Name: c.Name, Until: until, Delay: d.Backoff[c.Name].Delay, Attempt: s.Attempt})
			return
		}
	}
	d.Start = append(d.Start, s)
}

// kill asks for a running container to be stopped, unless that is under way.
func (d *decision) kill(c *Container, reason KillReason, message string, grace *int64) {
	d.wanted++
	if d.Busy[c.Id] == Stopping {
		return
	}
	d.Kill = append(d.Kill, Kill{Container: c, Spec: find(d.Pod, c.Name()), Reason: reason, Message: message, Grace: grace})
}

// condemned looks for a reason to stop a running container and asks for it; it reports whether there was one.
func (d *decision) condemned(spec *v1.Container, c *Container, willRestart bool) bool {
	tail := ""
	if willRestart {
		tail = ", will be restarted"
	}
	probe := d.Probes[spec.Name]
	if probe.ContainerID != c.Id {
		probe = ProbeState{}
	}
	switch {
	case c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		d.kill(c, KillUnknown, fmt.Sprintf("Container is in %q state, try killing it before restart", "unknown"), nil)
	case c.Hash != "" && c.Hash != d.Hash(spec):
		d.kill(c, KillChanged, fmt.Sprintf("Container %s definition changed, will be restarted", spec.Name), nil)
	case probe.Failed == "Liveness":
		d.kill(c, KillLiveness, fmt.Sprintf("Container %s failed liveness probe%s", spec.Name, tail), probeGrace(spec.LivenessProbe))
	case probe.Failed == "Startup":
		d.kill(c, KillStartup, fmt.Sprintf("Container %s failed startup probe%s", spec.Name, tail), probeGrace(spec.StartupProbe))
	default:
		return false
	}
	return true
}

func probeGrace(p *v1.Probe) *int64 {
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}

// find returns the spec of a container of any kind by name, nil where the pod has none.
func find(pod *v1.Pod, name string) *v1.Container {
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		}
	}
	return nil
}
