package plan

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DecideStop returns what a pod that has to end needs now: app containers (and init containers still at work) stop side by side; then the sidecars, in
// reverse order, each after the one behind it has ended; then the sandboxes. It starts nothing.
func DecideStop(in Input) Actions {
	d := newDecision(in)
	running := d.Observed.Running()
	if len(running) > 0 {
		for _, c := range d.stopNow(running) {
			d.kill(c, KillPod, "Stopping container "+c.Name(), nil)
		}
		return d.Actions
	}
	ready := false
	for _, s := range d.Observed.Sandboxes {
		d.StopSandboxes = append(d.StopSandboxes, s.Id)
		ready = ready || s.State == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	// A busy operation on a container that has ended (a hook being cut off) must finish, too.
	d.Stopped = !ready && len(d.Busy) == 0
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
	var now []*Container
	turn := 0 // of those that run: what is no sidecar, else the last sidecar
	for _, c := range running {
		n := order[c.Name()]
		switch {
		case len(now) == 0, n == 0 && turn != 0, n > turn && turn != 0:
			now, turn = []*Container{c}, n
		case n == turn:
			now = append(now, c)
		}
	}
	return now
}
