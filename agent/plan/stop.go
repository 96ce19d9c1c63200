package plan

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DecideStop returns what a pod that has to end needs now: app containers (and init containers still at work) stop side by side; then the sidecars, in
// reverse order, each after the one behind it has ended; then the sandboxes. It starts nothing.
func DecideStop(in Input) Actions {
	d := decision{Input: in}
	running := d.Observed.Running()
	if len(running) > 0 {
		for _, c := range d.stopNow(running) {
			d.kill(c, KillPod, "Stopping container "+c.Name(), nil)
		}
		return d.Actions
	}
	for _, s := range d.Observed.Sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			d.StopSandboxes = append(d.StopSandboxes, s.Id)
		}
	}
	// A busy operation on a container that has ended (a hook being cut off) must finish, too.
	d.Stopped = len(d.StopSandboxes) == 0 && len(d.Busy) == 0
	return d.Actions
}

// stopNow picks the containers whose turn it is to stop.
func (d *decision) stopNow(running []*Container) []*Container {
	order := map[string]int{}
	for i := range d.Pod.Spec.InitContainers {
		if c := &d.Pod.Spec.InitContainers[i]; sidecar(c) {
			order[c.Name] = i + 1
		}
	}
	var first []*Container
	last := 0
	for _, c := range running {
		switch n := order[c.Name()]; {
		case n == 0:
			first = append(first, c)
		case n > last:
			last = n
		}
	}
	if len(first) > 0 {
		return first
	}
	for _, c := range running {
		if order[c.Name()] == last {
			first = append(first, c)
		}
	}
	return first
}

// garbage marks the records that no longer matter: of each container all ended incarnations but the newest ended one, what was created and
// never started by a pass that did not live to start it, and stopped sandboxes that hold nothing (row 50: one dead instance per container).
func (d *decision) garbage() {
	dead := map[string]bool{}
	kept := map[string]bool{}
	for _, c := range d.Observed.Containers {
		switch {
		case c.Running(), d.Busy[c.Id] != "":
			kept[c.SandboxID] = true
		case c.State == runtimeapi.ContainerState_CONTAINER_CREATED, dead[c.Name()]:
			d.RemoveContainers = append(d.RemoveContainers, c)
		default:
			dead[c.Name()] = true
			kept[c.SandboxID] = true
		}
	}
	for i, s := range d.Observed.Sandboxes {
		if i > 0 && s.State != runtimeapi.PodSandboxState_SANDBOX_READY && !kept[s.Id] {
			d.RemoveSandboxes = append(d.RemoveSandboxes, s.Id)
		}
	}
}

// RestartFloors returns the least next attempt of each container by its last known status, for containers whose records are gone.
func RestartFloors(status *v1.PodStatus) map[string]uint32 {
	floors := map[string]uint32{}
	if status == nil {
		return floors
	}
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses, status.EphemeralContainerStatuses} {
		for i := range list {
			s := &list[i]
			if s.ContainerID != "" || s.LastTerminationState.Terminated != nil {
				floors[s.Name] = uint32(s.RestartCount) + 1
			}
		}
	}
	return floors
}
