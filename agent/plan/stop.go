package plan

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DecideStop returns what a pod that has to end needs now: every container stops at once, which begins with its preStop hook; but sidecars get their signals
// only when the app containers and the init containers still at work have ended, in reverse order, each after the one behind it, or once the grace is over
// (KEP-753); then the sandboxes. It starts nothing.
func DecideStop(in Input) Actions {
	d := newDecision(in)
	running := d.Observed.Running()
	if len(running) > 0 {
		d.stopAll(running, func(c *Container) string { return "Stopping container " + c.Name() })
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

// stopAll asks for the end of all that runs, and holds back those whose turn it is not.
func (d *decision) stopAll(running []*Container, message func(*Container) string) {
	turn := d.turns(running)
	for _, c := range running {
		before := len(d.Kill)
		d.kill(c, KillPod, message(c), nil)
		for i := before; i < len(d.Kill); i++ {
			d.Kill[i].Held = !turn[c]
		}
	}
}

// turns picks the running containers whose turn it is to get their signals: at once what is no sidecar; a sidecar once no app or init container runs, and
// no sidecar that stands behind it. Ephemeral containers hold nobody back.
func (d *decision) turns(running []*Container) map[*Container]bool {
	order := d.stopOrder()
	last := 0 // of the sidecars that run
	busy := false
	for _, c := range running {
		n, known := order[c.Name()]
		last = max(last, n)
		busy = busy || n == 0 && (known || placeholder(d.Input))
	}
	turn := make(map[*Container]bool, len(running))
	for _, c := range running {
		n := order[c.Name()]
		turn[c] = n == 0 || !busy && n == last
	}
	return turn
}

// stopOrder gives each sidecar its place from 1, and the other init and app containers 0; ephemeral containers are not in it.
func (d *decision) stopOrder() map[string]int {
	order := map[string]int{}
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		order[c.Name] = 0
		if Sidecar(c) {
			order[c.Name] = i + 1
		}
	}
	for i := range d.Pod.Spec.Containers {
		order[d.Pod.Spec.Containers[i].Name] = 0
	}
	return order
}

// placeholder reports whether nothing is known of the pod's containers but what the runtime says.
func placeholder(in Input) bool { return len(in.Pod.Spec.Containers) == 0 }
