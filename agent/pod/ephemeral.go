package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// ephemerals are the ephemeral containers that were added to pods on this node. A pod's source
// knows nothing of these containers. Once they are in the pod's checkpoint, every reader of the pod
// gets the pod with them.
type ephemerals struct {
	mu    sync.Mutex
	byUID map[types.UID]*addedTo
}

// addedTo has the ephemeral containers of one pod.
type addedTo struct {
	list    []v1.EphemeralContainer
	pending []ephemeralRequest
	// from is the pod as its source has it, and merged is the same pod with list.
	from, merged *v1.Pod
}

// ephemeralRequest asks for a container to be added. done, which holds one error, receives the
// result.
type ephemeralRequest struct {
	container *v1.EphemeralContainer
	done      chan error
}

// of returns a pod's entry; e.mu is held.
func (e *ephemerals) of(uid types.UID) *addedTo {
	if e.byUID == nil {
		e.byUID = map[types.UID]*addedTo{}
	}
	if e.byUID[uid] == nil {
		e.byUID[uid] = &addedTo{}
	}
	return e.byUID[uid]
}

// set sets the ephemeral containers that are in a pod's checkpoint.
func (e *ephemerals) set(uid types.UID, list []v1.EphemeralContainer) {
	if len(list) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.of(uid)
	a.list, a.from = list, nil
}

// ask leaves a request for the pod's next sync.
func (e *ephemerals) ask(uid types.UID, r ephemeralRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.of(uid)
	a.pending = append(a.pending, r)
}

// take returns the pending requests, and removes them from the list.
func (e *ephemerals) take(uid types.UID) []ephemeralRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.byUID[uid]
	if a == nil {
		return nil
	}
	pending := a.pending
	a.pending = nil
	return pending
}

// drop forgets a pod that is gone.
func (e *ephemerals) drop(uid types.UID) {
	for _, r := range e.take(uid) {
		r.done <- fmt.Errorf("%w: it is gone", ErrOver)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byUID, uid)
}

// with returns the pod with the containers that were added to it. The same pod gives the same
// result, which must not be modified.
func (e *ephemerals) with(pod *v1.Pod) *v1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.byUID[pod.UID]
	if a == nil || len(a.list) == 0 || pods.RuntimeOnly(pod) {
		return pod
	}
	if a.from != pod {
		a.from, a.merged = pod, pod.DeepCopy()
		for _, c := range a.list {
			if !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(o v1.EphemeralContainer) bool {
				return o.Name == c.Name
			}) {
				a.merged.Spec.EphemeralContainers = append(a.merged.Spec.EphemeralContainers, c)
			}
		}
	}
	return a.merged
}

// ErrOver is the error of a pod that takes no more containers. ErrInvalid is the error of a
// container that the API would not accept.
var (
	ErrOver    = errors.New("the pod takes no more containers")
	ErrInvalid = errors.New("invalid")
)

// addEphemeral answers the requests for ephemeral containers. Each valid container goes into the
// pod's record, and the record is saved before the container is made.
func (e *Engine) addEphemeral(p *steps.Sync, work worker.Work) {
	for _, r := range e.ephemerals.take(work.UID) {
		r.done <- e.addOne(p, work, r.container)
	}
}

func (e *Engine) addOne(p *steps.Sync, work worker.Work, c *v1.EphemeralContainer) error {
	if work.Phase != worker.Running || p.Record.Ended {
		return fmt.Errorf("%w: it is being stopped", ErrOver)
	}
	merged, err := source.WithEphemeral(p.Pod, c)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if r := e.deps.Node.Room.CheckAdded(merged); r != nil {
		return fmt.Errorf("%w: %s: %s", ErrInvalid, r.Reason, r.Message)
	}
	before, last := p.Record.Ephemeral, len(merged.Spec.EphemeralContainers)-1
	p.Record.Ephemeral = append(slices.Clone(before), merged.Spec.EphemeralContainers[last])
	if err := p.Save(); err != nil {
		p.Record.Ephemeral = before
		return err
	}
	e.ephemerals.set(work.UID, p.Record.Ephemeral)
	p.Pod = e.ephemerals.with(work.Pod)
	return nil
}

// AddEphemeral adds an ephemeral container to a running pod, and returns once the container is on
// record, so that restarts of the agent keep it. The pod starts the container as soon as possible,
// and only once. The error is [ErrOver], [ErrInvalid], or an error of the disk.
func (e *Engine) AddEphemeral(ctx context.Context, uid types.UID, c *v1.EphemeralContainer) error {
	entry, ok := e.deps.Workers.Get(uid)
	s, known := e.deps.Status.Get(uid)
	switch {
	case !ok || pods.RuntimeOnly(entry.Pod):
		return fmt.Errorf("%w: it does not run here", ErrOver)
	case known && pods.Terminal(s.Status.Phase):
		return fmt.Errorf("%w: its phase is %s", ErrOver, s.Status.Phase)
	}
	r := ephemeralRequest{container: c, done: make(chan error, 1)}
	e.ephemerals.ask(uid, r)
	e.deps.Workers.Wake(uid)
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the pod's worker: %w", context.Cause(ctx))
	}
}
