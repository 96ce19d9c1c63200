package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// DeleteDeadContainers removes the containers, with their logs, and the sandboxes of all pods that
// have ended and are still wanted. The pods keep their statuses. Of other pods, syncs remove the
// dead containers as soon as the limits allow it. The error joins those of all pods.
func (e *Engine) DeleteDeadContainers(ctx context.Context) error {
	var errs []error
	for uid, entry := range e.deps.Workers.List() {
		if over(entry) {
			errs = append(errs, e.discardAll(ctx, uid, entry.Pod))
		}
	}
	return errors.Join(errs...)
}

// DeleteContainersOf removes the containers, with their logs, and the sandboxes of a pod that has
// ended and is still wanted. The pod keeps its status. It does nothing for any other pod.
func (e *Engine) DeleteContainersOf(ctx context.Context, uid types.UID) error {
	entry, ok := e.deps.Workers.Get(uid)
	if !ok || !over(entry) {
		return nil
	}
	return e.discardAll(ctx, uid, entry.Pod)
}

// over reports whether a pod has ended and is kept for its status and logs alone. Its worker makes
// no syncs.
func over(entry worker.Entry) bool {
	return entry.Phase == worker.Terminated && !entry.Unwanted && !entry.Waiting && !pods.RuntimeOnly(entry.Pod)
}

// discardAll removes everything that the runtime has of a pod that has ended. A removal that fails
// does not stop it.
func (e *Engine) discardAll(ctx context.Context, uid types.UID, pod *v1.Pod) error {
	observed, err := e.deps.Runtime.Observer.Pod(ctx, uid)
	if err != nil {
		return fmt.Errorf("looking at pod %s: %w", pods.FullName(pod), err)
	}
	if len(observed.Containers)+len(observed.Sandboxes) == 0 {
		return nil
	}
	var errs []error
	for _, c := range observed.Containers {
		if !c.Running() {
			errs = append(errs, e.starter.Discard(ctx, pod, c, true))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // the runtime would remove the containers with their sandbox, and their logs would stay
	}
	for _, s := range observed.Sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		if err := e.deps.Runtime.RemovePodSandbox(ctx, s.Id); err != nil {
			errs = append(errs, fmt.Errorf("removing sandbox %s: %w", s.Id, err))
		}
	}
	_, err = e.deps.Runtime.Observer.Pod(ctx, uid) // for the counts of containers
	return errors.Join(append(errs, err)...)
}

// TrimDeadContainers removes dead containers, with their logs, if the node has more of them than
// the config allows. It leaves the newest attempt of a container that may run again, because
// decisions about the pod need it. The error joins those of all containers.
func (e *Engine) TrimDeadContainers(ctx context.Context) error {
	if e.cfg.Dead.MaxTotal < 0 {
		return nil
	}
	workers := e.deps.Workers.List()
	var errs []error
	byID := map[string]*plan.Container{}
	var dead []plan.Dead
	for uid, entry := range workers {
		if entry.Waiting || entry.Unwanted || pods.RuntimeOnly(entry.Pod) {
			continue
		}
		observed, err := e.deps.Runtime.Observer.Pod(ctx, uid)
		if err != nil {
			errs = append(errs, fmt.Errorf("looking at pod %s: %w", pods.FullName(entry.Pod), err))
			continue
		}
		for _, c := range observed.Containers {
			if c.Exited() && time.Since(time.Unix(0, c.CreatedAt)) >= e.cfg.Dead.MinAge {
				byID[c.Id] = c
				dead = append(dead, plan.Dead{
					Pod: uid, Container: c.Name(), ID: c.Id, Created: c.CreatedAt,
					Needed: !over(entry) && observed.Latest(c.Name()) == c,
				})
			}
		}
	}
	for _, d := range plan.Surplus(dead, e.cfg.Dead.MaxTotal) {
		errs = append(errs, e.starter.Discard(ctx, workers[d.Pod].Pod, byID[d.ID], true))
	}
	return errors.Join(errs...)
}
