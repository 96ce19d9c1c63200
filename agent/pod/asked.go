package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/runtimestate"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// ErrNotRestarted is the error of a restart that cannot be: the pod ends, or the container does not
// run and would not start again.
var ErrNotRestarted = errors.New("not restarted")

// askedRestarts are the operators' requests for restarts that wait for the next sync of their pods.
// It is safe for concurrent use.
type askedRestarts struct {
	mu    sync.Mutex
	byUID map[types.UID][]*askedRestart
}

// askedRestart asks for a restart of containers; of all that can restart, if it names none. done,
// which holds one result, receives the answer.
type askedRestart struct {
	names []string
	plan.AskedRestart
	done chan restartAnswer
}

// restartAnswer has the containers that restart, or why none does.
type restartAnswer struct {
	names []string
	err   error
}

// ask leaves a request for the pod's next sync.
func (a *askedRestarts) ask(uid types.UID, r *askedRestart) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byUID == nil {
		a.byUID = map[types.UID][]*askedRestart{}
	}
	a.byUID[uid] = append(a.byUID[uid], r)
}

// take returns the pod's requests, and forgets them.
func (a *askedRestarts) take(uid types.UID) []*askedRestart {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := a.byUID[uid]
	delete(a.byUID, uid)
	return list
}

// withdraw forgets a request that nobody waits for any more. It reports whether the request was
// still there; otherwise a sync answers it now, or has answered it.
func (a *askedRestarts) withdraw(uid types.UID, r *askedRestart) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.byUID[uid])
	a.byUID[uid] = slices.DeleteFunc(a.byUID[uid], func(o *askedRestart) bool { return o == r })
	after := len(a.byUID[uid])
	if after == 0 {
		delete(a.byUID, uid)
	}
	return after < before
}

// drop refuses the requests of a pod that is gone.
func (a *askedRestarts) drop(uid types.UID) {
	for _, r := range a.take(uid) {
		r.done <- restartAnswer{err: fmt.Errorf("%w: the pod is gone", ErrNotRestarted)}
	}
}

// silenceLook is how long a restart waits for the pod's sync before it asks again whether the
// runtime answers.
const silenceLook = time.Second

// Restart restarts containers of a running pod, all app containers and sidecars if names is empty,
// and returns the names of those that restart. Each runs its preStop hook and gets its grace, which
// grace replaces if it is not nil, in seconds. A container that waits for its back-off starts at
// once. Restart returns when the request is on record, so that restarts of the agent keep it.
// Nothing is recorded while the runtime does not answer, also if the pod's sync could do without:
// the native runtime lists containers without containerd. The error is [ErrNotRestarted],
// [runtimestate.Silence], or one of the disk.
func (e *Engine) Restart(ctx context.Context, uid types.UID, names []string, grace *int64) ([]string, error) {
	entry, ok := e.deps.Workers.Get(uid)
	switch {
	case !ok || pods.RuntimeOnly(entry.Pod):
		return nil, fmt.Errorf("%w: the pod does not run here", ErrNotRestarted)
	case entry.Phase != worker.Running:
		return nil, fmt.Errorf("%w: %s", ErrNotRestarted, notRunning(entry))
	}
	if silence := e.deps.Runtime.State.Silent(ctx); silence != nil {
		return nil, restartNotRecorded(silence)
	}
	r := &askedRestart{
		names: names, AskedRestart: plan.AskedRestart{Grace: grace}, done: make(chan restartAnswer, 1),
	}
	e.restarts.ask(uid, r)
	e.deps.Workers.Wake(uid)
	look := time.NewTicker(silenceLook)
	defer look.Stop()
	for {
		select {
		case answer := <-r.done:
			return answer.names, answer.err
		case <-look.C:
			silence := e.deps.Runtime.State.Silent(ctx)
			if silence != nil && e.restarts.withdraw(uid, r) {
				return nil, restartNotRecorded(silence)
			}
		case <-ctx.Done():
			e.restarts.withdraw(uid, r)
			return nil, fmt.Errorf("waiting for the pod's worker: %w", context.Cause(ctx))
		}
	}
}

func restartNotRecorded(silence *runtimestate.Silence) error {
	return fmt.Errorf("%w; the restart is not recorded: ask again when the runtime answers", silence)
}

// notRunning says why no container of a pod that ends, or has ended, restarts, and what starts it.
func notRunning(e worker.Entry) string {
	name := pods.FullName(e.Pod)
	switch {
	case e.Unwanted || pods.FromAPI(e.Pod):
	case e.Stop.ComesBack(e.Pod) && e.Stop.Cause == worker.CauseOperator:
		return fmt.Sprintf("an operator has stopped the pod: \"berth start %s\" starts it", name)
	case e.Stop.ComesBack(e.Pod) && e.Stop.Cause == worker.CauseDrain:
		return `the node is drained: "berth drain --undo" lets its pods run again`
	case e.Phase == worker.Terminated:
		return fmt.Sprintf("the pod has ended: \"berth start %s\" runs it anew", name)
	}
	return "the pod ends, or has ended"
}

// noteAsked answers the requests for restarts. What restarts is in the pod's record, and the record
// is saved, before any container is stopped for it.
func (e *Engine) noteAsked(_ context.Context, s *podSync) (steps.Outcome, error) {
	for _, r := range e.restarts.take(s.work.UID) {
		names, err := e.noteOne(s, r)
		r.done <- restartAnswer{names: names, err: err}
	}
	return steps.Outcome{}, nil
}

func (e *Engine) noteOne(s *podSync, r *askedRestart) ([]string, error) {
	if s.work.Phase != worker.Running || s.Record.Ended || pods.RuntimeOnly(s.Pod) {
		return nil, fmt.Errorf("%w: the pod ends, or has ended", ErrNotRestarted)
	}
	chosen, err := restartable(e.planInput(s), r.names)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotRestarted, err)
	}
	var names, added []string
	for _, c := range chosen {
		names = append(names, c.Name())
		if _, again := s.Record.Asked[c.Id]; !again {
			added = append(added, c.Id)
		}
		s.Record.Ask(c.Id, r.AskedRestart)
	}
	if err := s.Save(); err != nil {
		for _, id := range added {
			delete(s.Record.Asked, id)
		}
		return nil, err
	}
	s.Log.Info("containers are restarted on request", "containers", names)
	return names, nil
}

// restartable returns the attempts that restart. Without names, these are all app containers and
// sidecars that can; if none can, the error says why.
func restartable(in plan.Input, names []string) ([]*plan.Container, error) {
	all := len(names) == 0
	if all {
		names = lastingContainers(in)
	}
	var out []*plan.Container
	var errs []error
	for _, name := range names {
		c, err := plan.Restartable(in, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, c)
	}
	if len(errs) > 0 && (!all || len(out) == 0) {
		return nil, errors.Join(errs...)
	}
	return out, nil
}

// lastingContainers returns the names of a pod's sidecars and app containers.
func lastingContainers(in plan.Input) []string {
	var names []string
	for i := range in.Pod.Spec.InitContainers {
		if c := &in.Pod.Spec.InitContainers[i]; pods.Sidecar(c) {
			names = append(names, c.Name)
		}
	}
	for i := range in.Pod.Spec.Containers {
		names = append(names, in.Pod.Spec.Containers[i].Name)
	}
	return names
}
