package agent

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/tasks"
)

type podUID = types.UID

// podState is what lives beside a pod's worker from its first pass to its last. Only the worker's goroutine touches it.
type podState struct {
	record *checkpoint.Record
	tasks  *tasks.Group
	// messages are the last words of ended containers, by id.
	messages map[string]string
	// inherited says that it was looked whether the API server knows more of the pod than the record.
	inherited bool
	// active is since when the pod has been active.
	active plan.Active
	// unmounted is since when the pod has waited for volumes, as the step says.
	unmounted time.Time
	// trouble is what the pod's passes fail with.
	trouble trouble
}

// podStates has the state of each pod.
type podStates struct {
	mu    sync.Mutex
	byUID map[podUID]*podState
	group func(podUID) *tasks.Group
}

// state returns the pod's state, which is made on first use.
func (s *podStates) state(uid podUID) *podState {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.byUID[uid]
	if st == nil {
		st = &podState{record: &checkpoint.Record{}, tasks: s.group(uid), messages: map[string]string{}}
		s.byUID[uid] = st
	}
	return st
}

// drop forgets the pod's state after joining its tasks, and returns its last record; nil for a pod that has no state.
func (s *podStates) drop(uid podUID) *checkpoint.Record {
	s.mu.Lock()
	st := s.byUID[uid]
	delete(s.byUID, uid)
	s.mu.Unlock()
	if st == nil {
		return nil
	}
	st.tasks.Wait()
	return st.record
}

// wait joins the tasks of all pods.
func (s *podStates) wait() {
	s.mu.Lock()
	states := slices.Collect(maps.Values(s.byUID))
	s.mu.Unlock()
	for _, st := range states {
		st.tasks.Wait()
	}
}

// placeholder reports whether a pod was made up from what the runtime says: it has no spec, and can be stopped but not run.
func placeholder(pod *v1.Pod) bool { return len(pod.Spec.Containers) == 0 }

// uidSet is a set of pods.
type uidSet struct {
	mu   sync.Mutex
	uids map[podUID]struct{}
}

// add reports whether the pod was not in the set before.
func (s *uidSet) add(uid podUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.uids == nil {
		s.uids = map[podUID]struct{}{}
	}
	_, had := s.uids[uid]
	s.uids[uid] = struct{}{}
	return !had
}

func (s *uidSet) has(uid podUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.uids[uid]
	return ok
}

// keep drops the pods of which wanted does not hold.
func (s *uidSet) keep(wanted func(podUID) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.uids, func(uid podUID, _ struct{}) bool { return !wanted(uid) })
}

func (s *uidSet) remove(uid podUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.uids, uid)
}
