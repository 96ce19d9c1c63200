package plan

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// DecideStop returns what a pod that has to end needs now. First every container stops at once,
// beginning with its preStop hook. Sidecars get their signals later (KEP-753): once the app
// containers and the init containers still at work have ended, in reverse order, each after the
// sidecar behind it, or once the grace is over. Then the sandboxes stop. DecideStop starts nothing.
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

// stopAll asks for the end of all that runs, and holds back the containers whose turn it is not.
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

// turns picks the running containers whose turn it is to get their signals. A container that is no
// sidecar gets its signal at once. A sidecar gets it once no app or init container runs, and no
// sidecar behind it. Ephemeral containers hold nobody back.
func (d *decision) turns(running []*Container) map[*Container]bool {
	order := d.stopOrder()
	last := 0 // of the sidecars that run
	busy := false
	for _, c := range running {
		n, known := order[c.Name()]
		last = max(last, n)
		busy = busy || n == 0 && (known || pods.RuntimeOnly(d.Pod))
	}
	turn := make(map[*Container]bool, len(running))
	for _, c := range running {
		n := order[c.Name()]
		turn[c] = n == 0 || !busy && n == last
	}
	return turn
}

// stopOrder gives each sidecar its place from 1, and the other init and app containers 0. Ephemeral
// containers are not in it.
func (d *decision) stopOrder() map[string]int {
	order := map[string]int{}
	for i := range d.Pod.Spec.InitContainers {
		c := &d.Pod.Spec.InitContainers[i]
		order[c.Name] = 0
		if pods.Sidecar(c) {
			order[c.Name] = i + 1
		}
	}
	for i := range d.Pod.Spec.Containers {
		order[d.Pod.Spec.Containers[i].Name] = 0
	}
	return order
}
