package probes

import v1 "k8s.io/api/core/v1"

// Result is the probe result for one run of one container.
type Result struct {
	// ContainerID is the run's container ID, as given in its [Target].
	ContainerID string `json:"containerID"`
	// Started is true once the startup probe has succeeded, and from the beginning if there is no
	// startup probe.
	Started bool `json:"started"`
	// Ready is true if the container is started and its readiness probe, if any, passes. It is
	// always false for init containers that are not restartable: those are ready when they have
	// ended.
	Ready bool `json:"ready"`
	// Failed is Liveness or Startup if that probe has failed for good, so that the container must
	// be killed. Otherwise it is empty.
	Failed Kind `json:"failed,omitempty"`
	// Message is the event message of the failure in Failed ("Liveness probe failed: …"); empty if
	// there is no failure.
	Message string `json:"message,omitempty"`
}

// health is the state of one run of one container: the thresholds of its probes, and what follows
// from them. It is pure; the Manager guards it.
type health struct {
	containerID string
	// finite marks an init container that is to end. It is never ready while it runs, and never
	// probed.
	finite bool
	// terminating marks a container that is being stopped. Its liveness and startup probes have no
	// effect any more.
	terminating bool
	thresholds  map[Kind]*threshold
	// message is the text of the last failure that changed a result.
	message string
}

// newHealth returns the health of a container that runs since now.
func newHealth(c *v1.Container, containerID string, finite bool) *health {
	h := &health{containerID: containerID, finite: finite, thresholds: map[Kind]*threshold{}}
	if finite {
		return h
	}
	for _, kind := range kinds {
		if m := newThreshold(kind, kind.specOf(c)); m != nil {
			h.thresholds[kind] = m
		}
	}
	return h
}

// started reports whether the startup probe, if any, has succeeded.
func (h *health) started() bool {
	m := h.thresholds[Startup]
	return m == nil || m.result == passing
}

// wants reports whether the probe of that kind should run now.
func (h *health) wants(kind Kind) bool {
	m := h.thresholds[kind]
	if m == nil || m.final() {
		return false
	}
	switch kind {
	case Startup:
		return !h.terminating
	case Liveness:
		return h.started() && !h.terminating
	case Readiness:
		// Readiness probes run until the container ends: load balancers use them to drain it.
		return h.started()
	}
	return false
}

// observe adds one outcome of a probe; message is the event text of a failure.
func (h *health) observe(kind Kind, ok bool, message string) {
	m := h.thresholds[kind]
	if m == nil {
		return
	}
	before := m.result
	m.observe(ok)
	if m.result == failing && before != failing {
		h.message = message
	}
}

// result returns the public view.
func (h *health) result() Result {
	r := Result{ContainerID: h.containerID, Started: h.started()}
	if m := h.thresholds[Readiness]; m == nil || m.result == passing {
		r.Ready = r.Started && !h.finite
	}
	if h.terminating {
		return r
	}
	for _, kind := range [...]Kind{Liveness, Startup} {
		if m := h.thresholds[kind]; m != nil && m.result == failing {
			r.Failed, r.Message = kind, h.message
			break
		}
	}
	return r
}

// restore takes over what an earlier agent knew about the same run. It changes nothing if the
// container IDs differ.
func (h *health) restore(old Result) {
	if old.ContainerID != h.containerID {
		return
	}
	if m := h.thresholds[Startup]; m != nil && old.Started {
		m.result = passing
	}
	if m := h.thresholds[Readiness]; m != nil && old.Ready {
		m.result = passing
	}
	if m := h.thresholds[old.Failed]; m != nil && old.Failed != Readiness {
		m.result = failing
		h.message = old.Message
	}
}
