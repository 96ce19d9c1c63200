package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// initContainers looks at the init containers in order and reports whether it is the app
// containers' turn. A container that is later in the pod's order and exists in this sandbox proves
// that the earlier ones are done, whether or not the runtime still has their records.
func (d *decision) initContainers() bool {
	progress := d.progress()
	for i := range d.Pod.Spec.InitContainers {
		spec := &d.Pod.Spec.InitContainers[i]
		switch {
		case pods.Sidecar(spec):
			if !d.sidecar(spec) && i >= progress {
				return false
			}
		case i >= progress && !d.initContainer(spec):
			return false
		}
	}
	d.Initialized = !d.CreateSandbox
	return true
}

// progress returns the index of the first init container that is not known to be done.
func (d *decision) progress() int {
	all := len(d.Pod.Spec.InitContainers)
	if d.SandboxID != "" && d.InitializedIn == d.SandboxID {
		return all
	}
	for i := range d.Pod.Spec.Containers {
		if d.here(d.Pod.Spec.Containers[i].Name) != nil {
			return all
		}
	}
	for i := all - 1; i >= 0; i-- {
		if d.here(d.Pod.Spec.InitContainers[i].Name) != nil {
			return i
		}
	}
	return 0
}

// initContainer brings one init container to its end and reports whether it has ended well.
func (d *decision) initContainer(spec *v1.Container) bool {
	c := d.here(spec.Name)
	switch {
	case c == nil, c.Created():
		d.start(spec, Init)
	case c.Running() && d.begun(c):
	case c.Unknown():
		d.killIfNeeded(spec, c, Init)
	case c.Running(), d.Busy[c.Id] != "":
	case c.ExitCode == 0:
		return true
	case d.restarts(spec, c.ExitCode):
		d.start(spec, Init)
	default:
		d.finish()
	}
	return false
}

// sidecar keeps one sidecar running. It reports whether the sidecar has started, so that the
// containers behind it may start.
func (d *decision) sidecar(spec *v1.Container) bool {
	c := d.here(spec.Name)
	switch {
	case c != nil && (d.Busy[c.Id] != "" || c.Running() && d.begun(c)):
		return false
	case c == nil, !c.Running():
		d.start(spec, Init)
		return false
	case d.killIfNeeded(spec, c, Init):
		return false
	}
	probe := d.Probes[spec.Name]
	return spec.StartupProbe == nil || probe.ContainerID == c.Id && probe.Started
}

// appContainers starts, keeps, stops and restarts the app containers. They start in order, and a
// postStart hook under way holds back the containers behind it. If no app container runs or is to
// run, the pod is finished. If every app container that has not ended is ending for good, the pod
// ends with them.
func (d *decision) appContainers() {
	wanted, held, ending := false, false, true
	for i := range d.Pod.Spec.Containers {
		spec := &d.Pod.Spec.Containers[i]
		c := d.Observed.Latest(spec.Name)
		switch {
		case d.stale[spec.Name]:
		case c != nil && d.Busy[c.Id] != "":
			held = held || d.Busy[c.Id] == PostStart
		case c != nil && c.Running():
			d.killIfNeeded(spec, c, App)
		case d.over(spec):
			continue
		case !held:
			d.start(spec, App)
		}
		wanted, ending = true, ending && d.endsForGood(spec, c)
	}
	switch {
	case !wanted:
		d.finish()
	case ending:
		d.leaveSidecars()
	}
}

// endsForGood reports whether an app container that has not ended is being stopped, or is to be
// stopped, and will not run again whatever it ends with.
func (d *decision) endsForGood(spec *v1.Container, c *Container) bool {
	if c == nil || d.policy(spec) != v1.RestartPolicyNever || len(spec.RestartPolicyRules) > 0 ||
		d.KilledToRestart[c.Id] {
		return false
	}
	killed := slices.ContainsFunc(d.Kill, func(k Kill) bool {
		return k.Container == c && (k.Reason == KillLiveness || k.Reason == KillStartup)
	})
	return killed || d.begun(c)
}

// leaveSidecars leaves the sidecars as they are, both those that run and those that do not. The pod
// ends, and the sidecars end once the last app container has ended. No ephemeral container starts
// any more.
func (d *decision) leaveSidecars() {
	d.ending = true
	d.Start = nil
	d.Kill = slices.DeleteFunc(d.Kill, func(k Kill) bool {
		_, kind := FindContainer(d.Pod, k.Container.Name())
		return kind == Init && k.Reason != KillBegun && k.Reason != KillStale
	})
}

// over reports whether an app container that does not run has ended for good.
func (d *decision) over(spec *v1.Container) bool {
	again, ran := d.again(spec)
	return ran && !again
}

// ephemeralContainers starts each ephemeral container once, whatever the state of the other
// containers.
func (d *decision) ephemeralContainers() {
	if d.CreateSandbox || d.Finished || d.ending {
		return
	}
	for i := range d.Pod.Spec.EphemeralContainers {
		spec := (*v1.Container)(&d.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		c := d.Observed.Latest(spec.Name)
		if c == nil && d.RestartFloor[spec.Name] == 0 || c != nil && c.Created() {
			d.start(spec, Ephemeral)
		}
	}
}
