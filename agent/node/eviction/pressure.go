package eviction

import (
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// Pressure has the node's conditions about what it lacks. The zero value is a node without
// pressure. It is safe for concurrent use.
type Pressure struct {
	mu         sync.Mutex
	conditions []v1.NodeConditionType
}

// Conditions returns the conditions that are true now, sorted: DiskPressure, MemoryPressure,
// PIDPressure.
func (p *Pressure) Conditions() []v1.NodeConditionType {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.conditions)
}

// set stores the conditions, and reports whether they are others than before.
func (p *Pressure) set(conditions []v1.NodeConditionType) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed = !slices.Equal(p.conditions, conditions)
	p.conditions = conditions
	return changed
}
