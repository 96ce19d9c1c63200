package probes

import v1 "k8s.io/api/core/v1"

// Result is what probing says about one run of one container.
type Result struct {
	// ContainerID is the run that this is about, as given in its [Target].
	ContainerID string `json:"containerID"`
	// Started is true once the startup probe has succeeded, and from the beginning where there is none.
	Started bool `json:"started"`
	// Ready is true when the container is started and its readiness probe, if any, last said so. Always false for init
	// containers that are not restartable: those are ready by having ended.
	Ready bool `json:"ready"`
	// Failed is Liveness or Startup when that probe has failed for good, so that the container must be killed; else empty.
	Failed Kind `json:"failed,omitempty"`
	// Message is the event message of the failure in Failed ("Liveness probe failed: …"); empty without one.
	Message string `json:"message,omitempty"`
}

// health is the state of one run of one container: its machines and what follows from them. It is pure; the Manager guards it.
type health struct {
	containerID string
	// finite marks an init container that is to end: never ready while it runs, never probed.
	finite bool
	// terminating marks a container that is being stopped: liveness and startup no longer matter.
	terminating bool
	machines    map[Kind]*machine
	// message is the text of the last failure that decided something.
	message string
}

// newHealth returns the health of a container that has just been seen running.
func newHealth(c *v1.Container, containerID string, finite bool) *health {
	h := &health{containerID: containerID, finite: finite, machines: map[Kind]*machine{}}
	if finite {
		return h
	}
	for _, kind := range kinds {
		if m := newMachine(kind, kind.specOf(c)); m != nil {
			h.machines[kind] = m
		}
	}
	return h
}

// started tells whether the startup probe, if any, has succeeded.
func (h *health) started() bool {
	m := h.machines[Startup]
	return m == nil || m.verdict == passing
}

// wants tells whether the probe of that kind should be running now.
func (h *health) wants(kind Kind) bool {
	m := h.machines[kind]
	if m == nil || m.final() {
		return false
	}
	switch kind {
	case Startup:
		return !h.terminating
	case Liveness:
		return h.started() && !h.terminating
	case Readiness:
		// Readiness is probed to the very end: load balancers drain by it.
		return h.started()
	}
	return false
}

// observe takes one outcome of a probe; message is the event text of a failure.
func (h *health) observe(kind Kind, ok bool, message string) {
	m := h.machines[kind]
	if m == nil {
		return
	}
	before := m.verdict
	m.observe(ok)
	if m.verdict == failing && before != failing {
		h.message = message
	}
}

// result computes the public view.
func (h *health) result() Result {
	r := Result{ContainerID: h.containerID, Started: h.started()}
	if m := h.machines[Readiness]; m == nil || m.verdict == passing {
		r.Ready = r.Started && !h.finite
	}
	if h.terminating {
		return r
	}
	for _, kind := range [...]Kind{Liveness, Startup} {
		if m := h.machines[kind]; m != nil && m.verdict == failing {
			r.Failed, r.Message = kind, h.message
			break
		}
	}
	return r
}

// restore takes over what an earlier agent knew about this very run. It changes nothing where the IDs differ.
func (h *health) restore(old Result) {
	if old.ContainerID != h.containerID {
		return
	}
	if m := h.machines[Startup]; m != nil && old.Started {
		m.verdict = passing
	}
	if m := h.machines[Readiness]; m != nil && old.Ready {
		m.verdict = passing
	}
	if m := h.machines[old.Failed]; m != nil && old.Failed != Readiness {
		m.verdict = failing
		h.message = old.Message
	}
}
