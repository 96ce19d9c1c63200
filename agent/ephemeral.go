package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/admit"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
)

// ephemerals are the ephemeral containers that were added to pods on this node. A pod's source knows nothing of them: they are put into the pod wherever it is
// looked at, once they are in its checkpoint.
type ephemerals struct {
	mu    sync.Mutex
	byUID map[podUID]*addedTo
}

// addedTo are those of one pod.
type addedTo struct {
	list    []v1.EphemeralContainer
	pending []ephemeralRequest
	// from is the pod as its source has it, and merged the same with list.
	from, merged *v1.Pod
}

// ephemeralRequest asks for a container to be added. done, which holds one error, hears how that went.
type ephemeralRequest struct {
	container *v1.EphemeralContainer
	done      chan error
}

// of returns a pod's entry; e.mu is held.
func (e *ephemerals) of(uid podUID) *addedTo {
	if e.byUID == nil {
		e.byUID = map[podUID]*addedTo{}
	}
	if e.byUID[uid] == nil {
		e.byUID[uid] = &addedTo{}
	}
	return e.byUID[uid]
}

// set says which containers are in a pod's checkpoint.
func (e *ephemerals) set(uid podUID, list []v1.EphemeralContainer) {
	if len(list) == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.of(uid)
	a.list, a.from = list, nil
}

// ask leaves a request for the pod's next pass.
func (e *ephemerals) ask(uid podUID, r ephemeralRequest) {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.of(uid)
	a.pending = append(a.pending, r)
}

// take returns the requests that nobody has looked at.
func (e *ephemerals) take(uid podUID) []ephemeralRequest {
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
func (e *ephemerals) drop(uid podUID) {
	for _, r := range e.take(uid) {
		r.done <- fmt.Errorf("%w: it is gone", server.ErrPodOver)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.byUID, uid)
}

// with returns the pod with what was added to it. The same pod gives the same result, which must not be modified.
func (e *ephemerals) with(pod *v1.Pod) *v1.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	a := e.byUID[pod.UID]
	if a == nil || len(a.list) == 0 || placeholder(pod) {
		return pod
	}
	if a.from != pod {
		a.from, a.merged = pod, pod.DeepCopy()
		for _, c := range a.list {
			if !slices.ContainsFunc(pod.Spec.EphemeralContainers, func(o v1.EphemeralContainer) bool { return o.Name == c.Name }) {
				a.merged.Spec.EphemeralContainers = append(a.merged.Spec.EphemeralContainers, c)
			}
		}
	}
	return a.merged
}

// addEphemeral answers the requests for ephemeral containers: each that is valid goes into the pod's record, which is saved before anything is made of it.
func (a *Agent) addEphemeral(p *steps.Pass, work worker.Work) {
	for _, r := range a.ephemerals.take(work.UID) {
		r.done <- func() error {
			if work.Phase != worker.Running || p.Record.Ended {
				return fmt.Errorf("%w: it is being stopped", server.ErrPodOver)
			}
			merged, err := source.WithEphemeral(p.Pod, r.container)
			if err != nil {
				return fmt.Errorf("%w: %w", server.ErrInvalid, err)
			}
			if r := admit.CheckAdded(admit.Input{Pod: merged, Bound: source.Bound(merged), Node: a.node.Admission()}); r != nil {
				return fmt.Errorf("%w: %s: %s", server.ErrInvalid, r.Reason, r.Message)
			}
			before, last := p.Record.Ephemeral, len(merged.Spec.EphemeralContainers)-1
			p.Record.Ephemeral = append(slices.Clone(before), merged.Spec.EphemeralContainers[last])
			if err := p.Save(); err != nil {
				p.Record.Ephemeral = before
				return err
			}
			a.ephemerals.set(work.UID, p.Record.Ephemeral)
			p.Pod = a.ephemerals.with(work.Pod)
			return nil
		}()
	}
}

// AddEphemeral adds an ephemeral container to a pod that runs, and returns once that is on record: it is kept over restarts of the agent. The pod starts it as
// soon as it can, and once. The error is a [server.ErrPodOver] or a [server.ErrInvalid] where it is not the disk's.
func (a *Agent) AddEphemeral(ctx context.Context, uid podUID, c *v1.EphemeralContainer) error {
	e, ok := a.workers.Get(uid)
	s, known := a.status.Get(uid)
	switch {
	case !ok || placeholder(e.Pod):
		return fmt.Errorf("%w: it does not run here", server.ErrPodOver)
	case known && terminal(s.Status):
		return fmt.Errorf("%w: its phase is %s", server.ErrPodOver, s.Status.Phase)
	}
	r := ephemeralRequest{container: c, done: make(chan error, 1)}
	a.ephemerals.ask(uid, r)
	a.workers.Wake(uid)
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the pod's worker: %w", context.Cause(ctx))
	}
}
