package status

import (
	"maps"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

// Entry is a pod's last derived status.
type Entry struct {
	UID       types.UID
	Namespace string
	Name      string
	// Version grows with every change of this pod's status; the first is 1. It orders writes to the
	// API.
	Version uint64
	// Status must not be modified.
	Status *v1.PodStatus
	// Ended says that everything that the pod used on this node was given back, and that this is
	// recorded.
	Ended bool
	// Stale says that the status is from an earlier run of the agent, and that nobody has checked
	// since then whether it is still true.
	Stale bool
}

// Store has the last derived status of every pod, by UID. The zero value is not usable; see
// [NewStore].
type Store struct {
	mu          sync.Mutex
	entries     map[types.UID]Entry
	subscribers map[*Subscription]struct{}
}

// NewStore returns an empty store.
func NewStore() *Store {
	return &Store{entries: map[types.UID]Entry{}, subscribers: map[*Subscription]struct{}{}}
}

// Set stores a pod's status, if it differs from the stored one, and notifies the subscribers. It
// returns what is stored now. It enforces rules that no writer may break: a final phase stays, with
// its reason and message, and no restart count falls.
func (s *Store) Set(pod *v1.Pod, status v1.PodStatus) (entry Entry, changed bool) {
	next := status.DeepCopy()
	s.mu.Lock()
	defer s.mu.Unlock()
	entry = s.entries[pod.UID]
	if old := entry.Status; old != nil {
		keepFinal(old, next)
		keepRestarts(old.InitContainerStatuses, next.InitContainerStatuses)
		keepRestarts(old.ContainerStatuses, next.ContainerStatuses)
		if equality.Semantic.DeepEqual(old, next) {
			s.confirm(entry)
			return s.entries[pod.UID], false
		}
	}
	entry = Entry{
		UID:       pod.UID,
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Version:   entry.Version + 1,
		Status:    next,
		Ended:     entry.Ended,
	}
	s.entries[pod.UID] = entry
	s.notify(pod.UID)
	return entry, true
}

// Restore stores what an earlier run of the agent knew about a pod. It is stale until Set or End is
// called for the pod.
func (s *Store) Restore(pod *v1.Pod, status v1.PodStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries[pod.UID] = Entry{
		UID:       pod.UID,
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Version:   1,
		Status:    status.DeepCopy(),
		Stale:     true,
	}
	s.notify(pod.UID)
}

// End records that everything that a pod used on the node was given back. It does nothing for a pod
// without a status.
func (s *Store) End(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if entry, ok := s.entries[uid]; ok && !entry.Ended {
		entry.Ended, entry.Stale = true, false
		s.entries[uid] = entry
		s.notify(uid)
	}
}

// confirm records that the status of an earlier run is still true. The caller holds the lock.
func (s *Store) confirm(entry Entry) {
	if entry.Stale {
		entry.Stale = false
		s.entries[entry.UID] = entry
		s.notify(entry.UID)
	}
}

// Get returns a pod's status.
func (s *Store) Get(uid types.UID) (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry, ok := s.entries[uid]
	return entry, ok
}

// All returns every pod's status.
func (s *Store) All() map[types.UID]Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.entries)
}

// Delete removes a pod of which nothing is left on the node. A later pod with the same UID (a
// manifest that came back) starts without a status.
func (s *Store) Delete(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.entries[uid]; ok {
		delete(s.entries, uid)
		s.notify(uid)
	}
}

// Subscribe returns a subscription to all later changes. Close it when done.
func (s *Store) Subscribe() *Subscription {
	sub := &Subscription{store: s, wake: make(chan struct{}, 1), dirty: map[types.UID]struct{}{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers[sub] = struct{}{}
	return sub
}

// notify marks a pod as changed for every subscriber. The caller holds the lock.
func (s *Store) notify(uid types.UID) {
	for sub := range s.subscribers {
		sub.dirty[uid] = struct{}{}
		select {
		case sub.wake <- struct{}{}:
		default:
		}
	}
}

// Subscription gives one reader the pods that changed. Several changes of a pod between two calls
// of Take become one; none is lost. A slow reader never blocks a writer.
type Subscription struct {
	store *Store
	wake  chan struct{}
	dirty map[types.UID]struct{} // guarded by store.mu
}

// Changed receives when Take has something to return.
func (s *Subscription) Changed() <-chan struct{} {
	return s.wake
}

// Take returns the pods that changed or were deleted since the last call. Ask the store for their
// statuses.
func (s *Subscription) Take() []types.UID {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	uids := make([]types.UID, 0, len(s.dirty))
	for uid := range s.dirty {
		uids = append(uids, uid)
	}
	clear(s.dirty)
	return uids
}

// Close ends the subscription. It may be called more than once.
func (s *Subscription) Close() {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	delete(s.store.subscribers, s)
}

// keepFinal restores a final phase that was changed.
func keepFinal(old, next *v1.PodStatus) {
	if !pods.Terminal(old.Phase) || next.Phase == old.Phase {
		return
	}
	next.Phase, next.Reason, next.Message = old.Phase, old.Reason, old.Message
}

// keepRestarts restores a restart count that fell.
func keepRestarts(old, next []v1.ContainerStatus) {
	for i := range next {
		if before := find(old, next[i].Name); before != nil {
			next[i].RestartCount = max(next[i].RestartCount, before.RestartCount)
		}
	}
}
