package pod

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/internal/loglimit"
)

// state is a pod's state beside its worker, from the first sync to the last. Only the worker's
// goroutine touches the state.
type state struct {
	record *checkpoint.Record
	tasks  *tasks.Group
	// messages are the termination messages of ended containers, by id.
	messages map[string]string
	// takenOver says that the engine has checked whether the API server knows more of the pod than
	// the record.
	takenOver bool
	// active knows since when the pod has been active.
	active plan.Active
	// unmounted is the time since which the pod has waited for volumes, according to the step.
	unmounted time.Time
	// leftovers are what the runtime does not remove of the pod.
	leftovers steps.Leftovers
	// overdue says that it was reported that the pod should have left the node.
	overdue bool
	// failures limits the log lines about the pod's failed syncs.
	failures loglimit.Limiter
}

// states has the state of each pod. It is safe for concurrent use.
type states struct {
	group func(types.UID) *tasks.Group

	mu    sync.Mutex
	byUID map[types.UID]*state
}

func newStates(group func(types.UID) *tasks.Group) *states {
	return &states{group: group, byUID: map[types.UID]*state{}}
}

// of returns the pod's state. The first call makes the state.
func (s *states) of(uid types.UID) *state {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byUID[uid]
	if st == nil {
		st = &state{
			record: &checkpoint.Record{}, tasks: s.group(uid), messages: map[string]string{}, leftovers: steps.Leftovers{},
		}
		s.byUID[uid] = st
	}
	return st
}

// drop forgets the pod's state after joining its tasks, but for looks at file systems, which may
// last for ever. It returns the pod's last record; nil for a pod that has no state.
func (s *states) drop(uid types.UID) *checkpoint.Record {
	s.mu.Lock()
	st := s.byUID[uid]
	delete(s.byUID, uid)
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	for _, key := range st.tasks.Active() {
		st.tasks.LeaveBehind(key)
	}
	st.tasks.Wait()
	return st.record
}

// active returns the keys of the tasks under way, by pod.
func (s *states) active() map[types.UID][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.UID][]string{}
	for uid, st := range s.byUID {
		if keys := st.tasks.Active(); len(keys) > 0 {
			out[uid] = keys
		}
	}
	return out
}

// wait joins the tasks of all pods.
func (s *states) wait() {
	s.mu.Lock()
	all := slices.Collect(maps.Values(s.byUID))
	s.mu.Unlock()
	for _, st := range all {
		st.tasks.Wait()
	}
}
