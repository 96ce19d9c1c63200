package probes

import v1 "k8s.io/api/core/v1"

// Kind names one of the three probes a container can have. The value is the word that events and metrics use.
type Kind string

// The kinds of probe.
const (
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
	Startup   Kind = "Startup"
)

// kinds lists every kind, in the order in which their workers are started.
var kinds = [...]Kind{Startup, Readiness, Liveness}

// specOf returns the probe of that kind in a container's spec, nil where it has none.
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

// verdict is what a probe currently says about its container.
type verdict int8

const (
	undecided verdict = iota
	passing
	failing
)

// machine turns single probe outcomes into a verdict: the verdict changes only after threshold equal outcomes in a row.
//
//	readiness: failing ⇄ passing
//	liveness:  passing → failing (final)
//	startup:   undecided → passing or failing (both final)
//
// It is a value without I/O or clock; one run of a container has its own.
type machine struct {
	kind    Kind
	verdict verdict
	// success and failure are the thresholds, at least 1.
	success, failure int32
	// streak counts how often in a row the outcome was lastOK.
	streak int32
	lastOK bool
}

// newMachine returns the machine of a probe that has not run yet, nil where spec is nil. Thresholds that are not set get the
// API's defaults: 1 for success, 3 for failure.
func newMachine(kind Kind, spec *v1.Probe) *machine {
	if spec == nil {
		return nil
	}
	m := &machine{
		kind:    kind,
		success: orDefault(spec.SuccessThreshold, 1),
		failure: orDefault(spec.FailureThreshold, 3),
	}
	switch kind {
	case Liveness:
		m.verdict = passing
	case Readiness:
		m.verdict = failing
	case Startup:
		m.verdict = undecided
	}
	return m
}

// observe takes one outcome. Outcomes after the final verdict are ignored.
func (m *machine) observe(ok bool) {
	if m.final() {
		return
	}
	if m.streak == 0 || m.lastOK != ok {
		m.lastOK, m.streak = ok, 0
	}
	// Beyond the thresholds the length of the streak says nothing more; standing still keeps it from overflowing.
	if m.streak < max(m.success, m.failure) {
		m.streak++
	}
	switch {
	case ok && m.streak >= m.success:
		m.verdict = passing
	case !ok && m.streak >= m.failure:
		m.verdict = failing
	}
}

// final tells whether no further outcome can change the verdict in this run of the container.
func (m *machine) final() bool {
	switch m.kind {
	case Liveness:
		return m.verdict == failing
	case Startup:
		return m.verdict != undecided
	}
	return false
}

// orDefault returns v where it is positive, and def where the spec left it out.
func orDefault(v, def int32) int32 {
	if v > 0 {
		return v
	}
	return def
}
