package plan

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox decides about the sandbox and reports whether its containers are to be looked at now.
func (d *decision) sandbox() bool {
	latest := d.Observed.Sandbox()
	if latest != nil && d.usable(latest) {
		d.SandboxID = latest.Id
		return true
	}
	// The sandbox is gone, or there never was one. What runs in an old one must end first, in the
	// order in which a pod ends.
	d.SandboxChanged = latest != nil
	if running := d.Observed.Running(); len(running) > 0 {
		d.SandboxChanged = true
		d.stopAll(running, func(*Container) string { return "Pod sandbox changed, it will be killed and re-created." })
		return false
	}
	if d.allDone() {
		d.finish()
		return false
	}
	for _, s := range d.Observed.Sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY || s == latest {
			d.StopSandboxes = append(d.StopSandboxes, s.Id)
		}
	}
	d.CreateSandbox = true
	if latest != nil {
		d.SandboxAttempt = latest.GetMetadata().GetAttempt() + 1
	}
	return true
}

// usable reports whether a sandbox can hold the pod: it is ready, it is the only ready one, it has
// the pod's network mode, and it has an address if it needs one.
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

// staleContainers asks for the end of stale containers: those in sandboxes that are not in use, and
// older attempts beside a newer one. It also goes on with stops that have begun. No other attempt
// of such a container starts until the container has ended.
func (d *decision) staleContainers() {
	for _, c := range d.Observed.Running() {
		name := c.Name()
		switch {
		case d.begun(c):
			d.kill(c, KillBegun, "Stopping container "+name, nil)
		case c.SandboxID != d.SandboxID:
			d.kill(c, KillStale, "Container "+name+" runs in a sandbox that is not in use", nil)
		case c != d.Observed.Latest(name):
			d.kill(c, KillStale, "Container "+name+" runs twice, the older instance is stopped", nil)
		default:
			continue
		}
		d.stale[name] = true
	}
}

// garbage marks the records to be removed: the ended attempts of each container that the limits do
// not spare, a container that an interrupted sync created and never started, and stopped sandboxes
// without containers.
func (d *decision) garbage() {
	dead := map[string]int{}
	kept := map[string]bool{}
	for _, c := range d.Observed.Containers {
		switch {
		case c.Running(), d.Busy[c.Id] != "":
		case c.Created(): // its sandbox is removed after it, in another sync
			d.RemoveContainers = append(d.RemoveContainers, c)
		case d.Dead.sparesNumber(dead[c.Name()]):
			dead[c.Name()]++
		case d.Dead.spares(c.CreatedAt, d.Now):
			d.TidyAt = earlier(d.TidyAt, d.Dead.until(c.CreatedAt))
		default:
			d.RemoveContainers = append(d.RemoveContainers, c)
			continue
		}
		kept[c.SandboxID] = true
	}
	for i, s := range d.Observed.Sandboxes {
		if i > 0 && s.State != runtimeapi.PodSandboxState_SANDBOX_READY && !kept[s.Id] {
			d.RemoveSandboxes = append(d.RemoveSandboxes, s.Id)
		}
	}
}
