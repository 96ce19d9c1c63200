// Package room owns the node's room for pods: how much is left, and which pods have the rest.
//
// Purpose: one place that decides whether a pod may run here ([Room.Admit]), and whether a running
// pod may have other resources ([Room.Resize]). Both look at the same pods and the same amounts,
// and one decision is recorded before the next is made, so that two pods never get the same room.
//
// Truth owned: the admitted pods, a pod's allocated resources if they differ from its spec, and the
// pods that wait for room. The node's resources for pods (allocatable) are read from the node at
// each decision, because they may change while the agent runs.
//
// Concurrency: a [Room] is safe for concurrent use.
package room

import (
	"context"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/resize"
	"github.com/berthd/berth/internal/pods"
)

// Occupant is a pod that has, or may have, room on the node.
type Occupant struct {
	Pod *v1.Pod
	// Terminating says that the pod is being ended: its room will be free.
	Terminating bool
}

// Deps are the functions that a room calls.
type Deps struct {
	// Occupants returns the node's pods that have not ended and do not wait for a predecessor.
	Occupants func() []Occupant
	// Node returns the facts about the node for the rules of admission. Allocatable returns the
	// node's resources for pods. Both are read at each decision.
	Node        func() admit.Node
	Allocatable func() v1.ResourceList
	// Reread reads the Node object anew, which may be newer in the API server than here. It may be
	// nil.
	Reread func(ctx context.Context)
	// Unallocated returns why a pod's containers cannot have the devices that they want; nil if they
	// have them, or if it is nil itself.
	Unallocated func(uid types.UID) *admit.Rejection
	// Unresizable returns why a running pod, which has what current asks for, cannot have what wanted
	// asks for; nil if it can, or if it is nil itself.
	Unresizable func(wanted, current *v1.Pod) *resize.Pending
	// Victims returns the pods that must leave so that a refused pod can run. If there are none, it
	// returns the refusal that stands.
	Victims func(in admit.Input, refused *admit.Rejection) ([]*v1.Pod, *admit.Rejection)
	// Leave asks a pod to leave for another pod, which was refused. Leave does not wait for the
	// pod's end.
	Leave func(victim, beneficiary *v1.Pod, refused *admit.Rejection)
	// Wake makes a pod that waits for room ask again.
	Wake func(uid types.UID)
}

// Room is what the node has left for pods. Make it with [New].
type Room struct {
	deps Deps

	// deciding is held over a decision and its record.
	deciding sync.Mutex

	mu        sync.Mutex
	admitted  map[types.UID]bool
	allocated map[types.UID]*v1.Pod
	waiting   map[types.UID]bool
}

// New returns an empty room.
func New(deps Deps) *Room {
	return &Room{
		deps:      deps,
		admitted:  map[types.UID]bool{},
		allocated: map[types.UID]*v1.Pod{},
		waiting:   map[types.UID]bool{},
	}
}

// Decision is the answer to a pod that asked to run.
type Decision struct {
	// Refused is the reason why the pod must never run; nil if the pod may run.
	Refused *admit.Rejection
	// Waits is the reason why the pod has to wait: only pods that are being ended keep it from
	// running, or the machine shuts down. Then nothing is decided, and the room wakes the pod when
	// the pod should ask again.
	Waits *admit.Rejection
}

// Admit decides whether the pod may run. Admit gives the decision to record before it decides on
// the next pod. If record fails, the decision is undone. A decision to wait is not recorded.
//
// A pod of the API server that the node does not match may have been bound for a label of which the
// node has not heard: the Node object is read anew before the decision. Others are decided on
// meanwhile.
func (r *Room) Admit(
	ctx context.Context, pod *v1.Pod, record func(refused *admit.Rejection) error,
) (Decision, error) {
	if r.deps.Reread != nil && pods.FromAPI(pod) && !admit.Matches(pod, r.deps.Node()) {
		r.deps.Reread(ctx)
	}
	r.deciding.Lock()
	defer r.deciding.Unlock()
	r.setWaiting(pod.UID, true) // set before the look, so that no end is missed
	stay, terminating := r.others(pod.UID)
	in := admit.Input{
		Pod:         pod,
		FromAPI:     pods.FromAPI(pod),
		Others:      stay,
		Allocatable: r.deps.Allocatable(),
		Node:        r.deps.Node(),
	}
	if r.deps.Unallocated != nil {
		in.Unallocated = r.deps.Unallocated(pod.UID)
	}
	refused := admit.Check(in)
	if refused != nil {
		if refused.Later {
			return Decision{Waits: refused}, nil
		}
		victims, stands := r.deps.Victims(in, refused)
		for _, v := range victims {
			r.deps.Leave(v, pod, refused)
		}
		if len(victims) > 0 {
			return Decision{Waits: refused}, nil
		}
		refused = stands
	} else if len(terminating) > 0 {
		in.Others = slices.Concat(stay, terminating)
		if waits := admit.Check(in); waits != nil {
			return Decision{Waits: waits}, nil
		}
	}
	r.setWaiting(pod.UID, false)
	if err := record(refused); err != nil {
		return Decision{}, err
	}
	if refused == nil {
		r.Restore(pod.UID, nil)
	}
	return Decision{Refused: refused}, nil
}

// Try returns why pods would be refused, by their UIDs. It decides nothing. Pods with the names of
// these pods do not count any more, nor do those for which leaves returns true. Each of the pods
// that would not be refused counts for those after it.
func (r *Room) Try(wanted []*v1.Pod, leaves func(*v1.Pod) bool) map[types.UID]*admit.Rejection {
	replaced := map[string]bool{}
	for _, pod := range wanted {
		replaced[pods.FullName(pod)] = true
	}
	stay, _ := r.others("")
	stay = slices.DeleteFunc(stay, func(pod *v1.Pod) bool { return replaced[pods.FullName(pod)] || leaves(pod) })
	out := map[types.UID]*admit.Rejection{}
	for _, pod := range wanted {
		in := admit.Input{
			Pod: pod, FromAPI: pods.FromAPI(pod), Others: stay, Allocatable: r.deps.Allocatable(), Node: r.deps.Node(),
		}
		if refused := admit.Check(in); refused != nil {
			if victims, stands := r.deps.Victims(in, refused); len(victims) == 0 {
				out[pod.UID] = stands
				continue
			}
		}
		stay = append(stay, pod)
	}
	return out
}

// CheckAdded returns the reason why an admitted pod may not have the containers that were added
// since; nil if the pod may have them.
func (r *Room) CheckAdded(pod *v1.Pod) *admit.Rejection {
	return admit.CheckAdded(admit.Input{Pod: pod, FromAPI: pods.FromAPI(pod), Node: r.deps.Node()})
}

// Resize decides whether a running pod, which has what current asks for, may have what wanted asks
// for. If it may, the decision is given to record before the next one is made, and nil is returned.
// Else the result says why not; a pod that could have it later ([v1.PodReasonDeferred]) is woken
// when there may be room.
func (r *Room) Resize(wanted, current *v1.Pod, record func() error) (*resize.Pending, error) {
	r.deciding.Lock()
	defer r.deciding.Unlock()
	stay, terminating := r.others(wanted.UID)
	if r.deps.Unresizable != nil {
		if pending := r.deps.Unresizable(wanted, current); pending != nil {
			r.setWaiting(wanted.UID, false)
			return pending, nil
		}
	}
	pending := resize.Fit(wanted, current, slices.Concat(stay, terminating), r.deps.Allocatable())
	if pending != nil {
		r.setWaiting(wanted.UID, pending.Reason == v1.PodReasonDeferred)
		return pending, nil
	}
	if err := record(); err != nil {
		return nil, err
	}
	r.SetAllocated(wanted.UID, wanted)
	r.setWaiting(wanted.UID, false)
	return nil, nil
}

// Requested returns what the admitted pods that have not ended request together, with their number.
func (r *Room) Requested() v1.ResourceList {
	stay, terminating := r.others("")
	return admit.Total(slices.Concat(stay, terminating))
}

// Hold holds back all decisions until the call of release.
func (r *Room) Hold() (release func()) {
	r.deciding.Lock()
	return r.deciding.Unlock
}

// Restore says that a pod was admitted, by an earlier agent or now. allocated is the pod with its
// allocated resources; nil if these are the resources of its spec.
func (r *Room) Restore(uid types.UID, allocated *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.admitted[uid] = true
	if allocated != nil {
		r.allocated[uid] = allocated
	}
}

// Admitted reports whether the pod was admitted.
func (r *Room) Admitted(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admitted[uid]
}

// Allocated returns the pod with its allocated resources.
func (r *Room) Allocated(pod *v1.Pod) *v1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	if allocated := r.allocated[pod.UID]; allocated != nil {
		return allocated
	}
	return pod
}

// SetAllocated notes a pod's allocated resources. nil says that these are the resources of its
// spec.
func (r *Room) SetAllocated(uid types.UID, allocated *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if allocated == nil {
		delete(r.allocated, uid)
		return
	}
	r.allocated[uid] = allocated
}

// Forget drops the facts about a pod that is gone, and wakes the pods that wait for room.
func (r *Room) Forget(uid types.UID) {
	r.mu.Lock()
	delete(r.admitted, uid)
	delete(r.allocated, uid)
	delete(r.waiting, uid)
	r.mu.Unlock()
	r.Freed()
}

// Freed wakes the pods that wait for room: a pod has ended, or has less now.
func (r *Room) Freed() {
	r.mu.Lock()
	waiting := slices.Collect(maps.Keys(r.waiting))
	r.mu.Unlock()
	for _, uid := range waiting {
		r.deps.Wake(uid)
	}
}

func (r *Room) setWaiting(uid types.UID, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if waits {
		r.waiting[uid] = true
	} else {
		delete(r.waiting, uid)
	}
}

// others returns all admitted pods but one, with their allocated resources: the pods that stay, and
// the pods that are being ended.
func (r *Room) others(uid types.UID) (stay, terminating []*v1.Pod) {
	for _, o := range r.deps.Occupants() {
		if o.Pod.UID == uid || !r.Admitted(o.Pod.UID) {
			continue
		}
		if allocated := r.Allocated(o.Pod); o.Terminating {
			terminating = append(terminating, allocated)
		} else {
			stay = append(stay, allocated)
		}
	}
	return stay, terminating
}
