package gc

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Marks has the pods whose leftovers are being removed. Nothing of such a pod may be made
// meanwhile. Make it with [NewMarks].
type Marks struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

// NewMarks returns marks of no pod.
func NewMarks() *Marks { return &Marks{uids: map[types.UID]bool{}} }

// Has reports whether the pod's leftovers are being removed.
func (m *Marks) Has(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.uids[uid]
}

func (m *Marks) set(uid types.UID, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if on {
		m.uids[uid] = true
	} else {
		delete(m.uids, uid)
	}
}
