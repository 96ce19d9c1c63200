package plan

import (
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// initContainers walks the init containers in order and reports whether the app containers' turn has come. A container that stands
// later in the pod and exists in this sandbox proves that the earlier ones have done their part, whether or not their records remain.
func (d *decision) initContainers() bool {
	progress := d.progress()
	for i := range d.Pod.Spec.InitContainers {
		spec := &d.Pod.Spec.InitContainers[i]
		if sidecar(spec) {
			if !d.sidecar(spec) && i >= progress {
				return false
			}
			continue
		}
		if i >= progress && !d.initContainer(spec) {
			return false
		}
	}
	d.Initialized = !d.CreateSandbox
	return true
}

// progress returns the index of the first init container that has not been passed.
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

// initContainer brings one init container to its end and reports whether it is there.
func (d *decision) initContainer(spec *v1.Container) bool {
	c := d.here(spec.Name)
	switch {
	case c == nil, c.State == runtimeapi.ContainerState_CONTAINER_CREATED:
		d.start(spec, Init)
	case c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		d.condemned(spec, c, true)
	case c.Running():
		d.wanted++
	case c.ExitCode == 0:
		return true
	case d.Busy[c.Id] != "":
		d.wanted++
	case d.restarts(spec, c):
		d.start(spec, Init)
	default:
		d.Finished = true
	}
	return false
}

// sidecar keeps one sidecar running and reports whether it has started, so that what follows it may.
func (d *decision) sidecar(spec *v1.Container) bool {
	c := d.here(spec.Name)
	switch {
	case c == nil, !c.Running() && d.Busy[c.Id] == "":
		d.start(spec, Init)
		return false
	case !c.Running(), d.condemned(spec, c, true), d.Busy[c.Id] == PostStart:
		return false
	}
	probe := d.Probes[spec.Name]
	return spec.StartupProbe == nil || probe.ContainerID == c.Id && probe.Started
}

// appContainers starts, keeps, stops and restarts the app containers. They start in order, and a postStart hook under way holds back those
// behind it.
func (d *decision) appContainers() {
	sidecars := d.wanted
	d.wanted = 0
	held := false
	for i := range d.Pod.Spec.Containers {
		spec := &d.Pod.Spec.Containers[i]
		c := d.Observed.Latest(spec.Name)
		switch {
		case c == nil:
			d.startUnless(held, spec)
		case d.Busy[c.Id] != "":
			d.wanted++
			held = held || d.Busy[c.Id] == PostStart
		case c.Running():
			if !d.condemned(spec, c, d.Pod.Spec.RestartPolicy != v1.RestartPolicyNever) {
				d.wanted++
			}
		case !c.Exited(), d.restarts(spec, c):
			d.startUnless(held, spec)
		}
	}
	if d.wanted == 0 {
		d.finish()
	}
	d.wanted += sidecars
}

func (d *decision) startUnless(held bool, spec *v1.Container) {
	if held {
		d.wanted++
		return
	}
	d.start(spec, App)
}

// finish drops what the sidecars asked for: they do not keep a pod alive whose app containers have ended.
func (d *decision) finish() {
	d.Finished = true
	d.CreateSandbox = false
	d.Start, d.Wait = nil, nil
}

// ephemeralContainers starts each ephemeral container once, whatever the state of the others.
func (d *decision) ephemeralContainers() {
	if d.CreateSandbox || d.Finished {
		return
	}
	for i := range d.Pod.Spec.EphemeralContainers {
		c := (*v1.Container)(&d.Pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if d.Observed.Latest(c.Name) == nil && d.RestartFloor[c.Name] == 0 {
			d.Start = append(d.Start, Start{Container: c, Kind: Ephemeral})
		}
	}
}
