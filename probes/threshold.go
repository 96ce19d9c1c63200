package probes

import v1 "k8s.io/api/core/v1"

// Kind is one of the three probes of a container. The value is the word in events and metrics.
type Kind string

// The kinds of probe.
const (
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
	Startup   Kind = "Startup"
)

// kinds has every kind, in the order in which their workers start.
var kinds = [...]Kind{Startup, Readiness, Liveness}

// specOf returns the probe of that kind in a container's spec, or nil if there is none.
func (k Kind) specOf(c *v1.Container) *v1.Probe {
	switch k {
	case Liveness:
		return c.LivenessProbe
	case Readiness:
		return c.ReadinessProbe
	case Startup:
		return c.StartupProbe
	}
	return nil
}

// probeResult is the current result of a probe.
type probeResult int8

const (
	undecided probeResult = iota
	passing
	failing
)

// threshold computes a probe result from single outcomes: the result changes only after success or
// failure equal outcomes in a row.
//
//	readiness: failing ⇄ passing
//	liveness:  passing → failing (final)
//	startup:   undecided → passing or failing (both final)
//
// It is a value without I/O or clock. Each run of a container has its own.
type threshold struct {
	kind   Kind
	result probeResult
	// success and failure are the thresholds of the spec, at least 1.
	success, failure int32
	// streak counts the outcomes in a row that are equal to lastOK.
	streak int32
	lastOK bool
}

// newThreshold returns the threshold of a probe that has not run yet, or nil if spec is nil.
// Thresholds that are not set have the API's defaults: 1 for success, 3 for failure.
func newThreshold(kind Kind, spec *v1.Probe) *threshold {
	if spec == nil {
		return nil
	}
	t := &threshold{
		kind:    kind,
		success: orDefault(spec.SuccessThreshold, 1),
		failure: orDefault(spec.FailureThreshold, 3),
	}
	switch kind {
	case Liveness:
		t.result = passing
	case Readiness:
		t.result = failing
	case Startup:
		t.result = undecided
	}
	return t
}

// observe adds one outcome. It ignores outcomes after the final result.
func (t *threshold) observe(ok bool) {
	if t.final() {
		return
	}
	if t.streak == 0 || t.lastOK != ok {
		t.lastOK, t.streak = ok, 0
	}
	// A streak longer than the thresholds has no meaning; the limit prevents an overflow.
	if t.streak < max(t.success, t.failure) {
		t.streak++
	}
	switch {
	case ok && t.streak >= t.success:
		t.result = passing
	case !ok && t.streak >= t.failure:
		t.result = failing
	}
}

// final reports whether no further outcome can change the result in this run of the container.
func (t *threshold) final() bool {
	switch t.kind {
	case Liveness:
		return t.result == failing
	case Startup:
		return t.result != undecided
	}
	return false
}

// orDefault returns v if it is positive, or def if the spec does not set it.
func orDefault(v, def int32) int32 {
	if v > 0 {
		return v
	}
	return def
}
