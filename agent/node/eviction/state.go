package eviction

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// rules are what the config says about pressure.
type rules struct {
	thresholds []Threshold
	// transition is how long a condition stays after its thresholds were last met.
	transition time.Duration
}

// state is what is remembered from one look at the node to the next. Thresholds are known by their
// index in the rules.
type state struct {
	// since is when a threshold was first met. due has the thresholds that were met for their grace
	// period and whose minimum reclaim has not been reached since.
	since map[int]time.Time
	due   map[int]bool
	// pressed is when a condition was last observed.
	pressed map[v1.NodeConditionType]time.Time
}

// next returns the state after a look at the node, the thresholds that pods must be evicted for, in
// the order of the rules, and the node's conditions, sorted. It follows the kubelet: a threshold
// that was due stays met until its minimum reclaim is reached; a condition is reported as soon as a
// threshold is met, also during a grace period, and for the transition period after that. A signal
// that cannot be read now changes nothing about its thresholds, and nobody is evicted for it.
func (s state) next(r rules, o observations, now time.Time) (
	after state, due []Threshold, conditions []v1.NodeConditionType,
) {
	after = state{since: map[int]time.Time{}, due: map[int]bool{}, pressed: maps.Clone(s.pressed)}
	if after.pressed == nil {
		after.pressed = map[v1.NodeConditionType]time.Time{}
	}
	for i, t := range r.thresholds {
		if since, known := s.since[i]; known && !o.has(t.Signal) {
			after.since[i], after.due[i] = since, s.due[i]
			continue
		}
		if !o.met(t, s.due[i]) {
			continue
		}
		since, known := s.since[i]
		if !known {
			since = now
		}
		after.since[i] = since
		after.pressed[t.Signal.condition()] = now
		if now.Sub(since) >= t.Grace {
			after.due[i] = true
			due = append(due, t)
		}
	}
	for condition, at := range after.pressed {
		if now.Sub(at) >= r.transition {
			delete(after.pressed, condition)
		}
	}
	return after, due, slices.Sorted(maps.Keys(after.pressed))
}

// crossed reports whether a threshold is met that was not before.
func (s state) crossed(r rules, o observations) bool {
	for i, t := range r.thresholds {
		if _, known := s.since[i]; !known && o.met(t, false) {
			return true
		}
	}
	return false
}

// relieved reports whether no threshold is met any more, with what must be reclaimed beyond it.
func relieved(thresholds []Threshold, o observations) bool {
	return !slices.ContainsFunc(thresholds, func(t Threshold) bool { return o.met(t, true) })
}
