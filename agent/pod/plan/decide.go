package plan

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Decide returns what a pod that should run needs now.
//
// It looks at the sandbox first, then at the init containers one after the other, with the
// sidecars, then at the app containers. Only the latest attempt of a container counts. A container
// that is busy (being stopped, or running its postStart hook) is left alone. A container that has
// to be stopped is stopped before its successor is asked for.
func Decide(in Input) Actions {
	d := newDecision(in)
	if d.restartAll() {
		return d.Actions
	}
	d.garbage()
	if !d.sandbox() {
		return d.Actions
	}
	d.staleContainers()
	if d.initContainers() {
		d.appContainers()
	}
	d.ephemeralContainers()
	return d.Actions
}

// decision has the input and collects the result.
type decision struct {
	Input
	Actions
	// stale has the names of containers with a running attempt that has to end before another may
	// start.
	stale map[string]bool
	// ending says that the app containers which run are being stopped for good.
	ending bool
}

func newDecision(in Input) *decision {
	return &decision{Input: in, stale: map[string]bool{}}
}

// here returns the latest attempt of a container if it belongs to the sandbox in use.
func (d *decision) here(name string) *Container {
	if c := d.Observed.Latest(name); c != nil && c.SandboxID == d.SandboxID && d.SandboxID != "" {
		return c
	}
	return nil
}

// start asks for a container's next attempt, or says how long it has to wait.
func (d *decision) start(c *v1.Container, kind Kind) {
	if d.stale[c.Name] {
		return
	}
	if d.held(c, kind) {
		return
	}
	s := Start{Container: c, Kind: kind, Attempt: d.attempt(c.Name), Previous: d.Observed.lastEnded(c.Name)}
	if kind == Init && s.Previous != nil && s.Previous.SandboxID != d.SandboxID {
		s.Previous = nil
	}
	if s.Previous != nil {
		finished := time.Unix(0, s.Previous.FinishedAt)
		backoff := d.Backoff[c.Name].For(BackoffKey(c))
		until, delay := backoff.Until(d.endOf(s.Previous), d.Limits), min(backoff.Delay, d.Limits.Max)
		if d.Limits.Free(s.Previous.ExitCode) {
			until, delay = time.Unix(0, s.Previous.StartedAt).Add(cleanExitSpacing), cleanExitSpacing
		}
		// an end in the future means that the clock was put back: it is no reason to wait
		// nor is it for a container that an operator wants to start again
		_, asked := d.Asked[s.Previous.Id]
		if until.After(d.Now) && !finished.After(d.Now) && !asked {
			d.Wait = append(d.Wait, Wait{Name: c.Name, Until: until, Delay: delay, Attempt: s.Attempt})
			return
		}
	}
	d.Start = append(d.Start, s)
}

// endOf returns how an ended container ended, for its back-off.
func (d *decision) endOf(c *Container) End {
	return End{Finished: time.Unix(0, c.FinishedAt), Killed: d.KilledToRestart[c.Id]}
}

// held reports whether a container is held back because the restart of all containers has to wait.
// The first container held back adds the one Wait, under the name of the container that asked for
// the restart.
func (d *decision) held(c *v1.Container, kind Kind) bool {
	if kind == Ephemeral || d.Hold == nil || !d.Hold.Until.After(d.Now) || d.Hold.Until.Sub(d.Now) > d.Hold.Delay {
		return false // a wait longer than its delay means that the clock was put back
	}
	if len(d.Wait) == 0 {
		d.Wait = append(d.Wait, Wait{
			Name:    d.Hold.By,
			Until:   d.Hold.Until,
			Delay:   d.Hold.Delay,
			Attempt: d.attempt(d.Hold.By),
		})
	}
	return true
}

// attempt returns the number of a container's next attempt. A container that was created and never
// started is removed first, and made again under its number.
func (d *decision) attempt(name string) uint32 {
	floor := d.RestartFloor[name]
	last := d.Observed.Latest(name)
	switch {
	case last == nil:
		return floor
	case last.Created() && floor <= last.Attempt()+1:
		return last.Attempt()
	default:
		return max(floor, last.Attempt()+1)
	}
}

// kill asks for a running container to be stopped, unless it is being stopped.
func (d *decision) kill(c *Container, reason KillReason, message string, grace *int64) {
	if d.Busy[c.Id] == Stopping {
		return
	}
	spec, _ := FindContainer(d.Pod, c.Name())
	k := Kill{Container: c, Spec: spec, Reason: reason, Message: message, Grace: grace}
	switch reason {
	case KillLiveness, KillStartup, KillResize:
		k.Again = spec != nil && d.policy(spec) != v1.RestartPolicyNever
	case KillChanged, KillAsked: // whatever the policy
		k.Again = spec != nil
	}
	d.Kill = append(d.Kill, k)
}

// begun reports whether the container's stop has begun.
func (d *decision) begun(c *Container) bool {
	_, ok := d.Stops[c.Id]
	return ok
}

// restartTail is what the event says of an app container that starts again.
const restartTail = ", will be restarted"

// killIfNeeded looks for a reason to stop a running container and asks for the stop. It reports
// whether there was a reason.
func (d *decision) killIfNeeded(spec *v1.Container, c *Container, kind Kind) bool {
	who, tail := "Container "+spec.Name, ""
	if kind == Init {
		who = "Init container " + spec.Name
	} else if d.policy(spec) != v1.RestartPolicyNever {
		tail = restartTail
	}
	probe := d.Probes[spec.Name]
	if probe.ContainerID != c.Id {
		probe = ProbeState{}
	}
	switch {
	case c.Unknown():
		d.kill(c, KillUnknown, fmt.Sprintf("%s is in %q state, try killing it before restart", who, "unknown"), nil)
	case c.Hash != "" && c.Hash != d.Hash(spec):
		if kind == App {
			tail = restartTail
		}
		d.kill(c, KillChanged, who+" definition changed"+tail, nil)
	case d.Resize[c.Id]:
		d.kill(c, KillResize, fmt.Sprintf("Container %s resize requires restart", spec.Name), nil)
	case probe.Failed == "Liveness":
		d.kill(c, KillLiveness, who+" failed liveness probe"+tail, probeGrace(spec.LivenessProbe))
	case probe.Failed == "Startup":
		d.kill(c, KillStartup, who+" failed startup probe"+tail, probeGrace(spec.StartupProbe))
	default:
		asked, ok := d.Asked[c.Id]
		if !ok {
			return false
		}
		d.kill(c, KillAsked, who+" is restarted on request", asked.Grace)
	}
	return true
}

// probeGrace returns a probe's own grace period, nil if it has none.
func probeGrace(p *v1.Probe) *int64 {
	if p == nil {
		return nil
	}
	return p.TerminationGracePeriodSeconds
}

// finish says that the pod is over, and drops what was asked for to keep it going. Sidecars do not
// keep a pod alive.
func (d *decision) finish() {
	d.Finished = true
	d.CreateSandbox, d.StopSandboxes = false, nil
	d.Start, d.Wait, d.Kill = nil, nil, nil
}

// FindContainer returns the spec and the kind of a container by name, nil if the pod has none.
func FindContainer(pod *v1.Pod, name string) (*v1.Container, Kind) {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return c, Init
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c, App
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; c.Name == name {
			return (*v1.Container)(&c.EphemeralContainerCommon), Ephemeral
		}
	}
	return nil, ""
}
