package stopped

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// ErrRefused is the error of a request that the pod's state or source forbids. Its text says what
// to do instead.
var ErrRefused = errors.New("refused")

// Pods has the operations on workers that an operator's requests need; *worker.Pool implements it.
type Pods interface {
	List() map[types.UID]worker.Entry
	Stop(uid types.UID, stop worker.Stop)
	Remove(uid types.UID)
}

// Deps are what an operator's requests work with.
type Deps struct {
	Marks *Marks
	Pods  Pods
	// Containers restarts containers of a running pod, and returns which.
	Containers func(ctx context.Context, uid types.UID, names []string, grace *int64) ([]string, error)
	// Wanted returns what the sources want now. Changed says that the wanted pods have to be given
	// to the workers again.
	Wanted  func() source.Update
	Changed func()
	Logger  *slog.Logger
}

// Operator carries out what operators ask for. Make it with [NewOperator].
type Operator struct {
	deps Deps
	log  *slog.Logger
}

// NewOperator returns an operator.
func NewOperator(deps Deps) *Operator { return &Operator{deps: deps, log: deps.Logger} }

// Run forgets the stops of pods whose manifests are away for long, until ctx ends.
func (o *Operator) Run(ctx context.Context) error {
	for retry.Sleep(ctx, time.Hour) {
		u := o.deps.Wanted()
		if !u.AllReady {
			continue // a source that was not read yet may want the pod
		}
		wanted := map[string]bool{}
		for _, pod := range u.Pods {
			wanted[pods.FullName(pod)] = true
		}
		if err := o.deps.Marks.age(wanted); err != nil {
			o.log.Warn("the age of stops is not on record", "err", err)
		}
	}
	return nil
}

// Restart restarts containers of a pod, and returns which; see [pod.Engine.Restart].
func (o *Operator) Restart(ctx context.Context, pod *v1.Pod, names []string, grace *int64) ([]string, error) {
	return o.deps.Containers(ctx, pod.UID, names, grace)
}

// Stop begins to stop a static pod, which then stays stopped until [Operator.Start]. grace replaces
// the pod's own grace period, in seconds, if it is not nil; a second Stop can only shorten it. A
// pod that is being removed is not marked: for it, Stop only shortens the grace. Stop refuses a pod
// of the API server, and a pod that has ended by itself.
func (o *Operator) Stop(pod *v1.Pod, grace *int64) error {
	name := pods.FullName(pod)
	if pods.FromAPI(pod) {
		return fmt.Errorf("%w: pod %s belongs to the API server, which would make it run again: delete it there "+
			"(kubectl delete pod -n %s %s), or scale its owner down (kubectl scale)", ErrRefused, name, pod.Namespace,
			pod.Name)
	}
	e, known := o.deps.Pods.List()[pod.UID]
	switch {
	case !known || pods.RuntimeOnly(e.Pod):
		return fmt.Errorf("%w: pod %s is not wanted on this node any more", ErrRefused, name)
	case !e.Unwanted && !e.Waiting && pods.Terminal(pod.Status.Phase):
		return fmt.Errorf("%w: pod %s has ended by itself (%s), and runs anew only if \"berth start %[2]s\" or a changed "+
			"manifest starts it", ErrRefused, name, pod.Status.Phase)
	case !e.Unwanted || e.Again:
		if err := o.deps.Marks.add(e.Pod); err != nil {
			return err
		}
	}
	stop := worker.Stop{}
	if by := o.deps.Marks.Of(e.Pod); by != nil {
		stop = *by
	}
	stop.Grace = grace
	o.log.Info("pod is stopped on request", "pod", name, "uid", pod.UID, "graceSeconds", grace)
	if !e.Waiting {
		o.deps.Pods.Stop(pod.UID, stop)
	}
	return nil
}

// Start lets a stopped pod run again, and a pod that has ended by itself run anew; it reports
// whether the pod was one of these. A pod that has not ended yet runs again as soon as it has.
// Start refuses a pod of the API server that has ended.
func (o *Operator) Start(ctx context.Context, pod *v1.Pod) (was bool, err error) {
	name, ended := pods.FullName(pod), pods.Terminal(pod.Status.Phase)
	if ended && pods.FromAPI(pod) {
		return false, fmt.Errorf("%w: pod %s has ended (%s) and belongs to the API server, which does not run a pod "+
			"twice: make another one there (kubectl), or delete it for its owner to do so", ErrRefused, name,
			pod.Status.Phase)
	}
	if was, err = o.deps.Marks.remove(pod); err != nil {
		return was, err
	}
	var removed []types.UID
	for uid, e := range o.deps.Pods.List() {
		byOperator := e.Stop != nil && e.Stop.Cause == worker.CauseOperator && pods.FullName(e.Pod) == name
		byItself := ended && uid == pod.UID && !e.Waiting && e.Phase != worker.Running
		if !e.Unwanted && (byOperator || byItself) {
			removed = append(removed, uid)
			o.deps.Pods.Remove(uid)
		}
	}
	if !was && len(removed) == 0 {
		return false, nil
	}
	o.log.Info("pod is started on request", "pod", name)
	o.deps.Changed()
	o.awaitRecorded(ctx, removed)
	return true, nil
}

const (
	// recordedWait is the longest wait for the records of removed pods, and recordedLook the time
	// between two looks at them.
	recordedWait = 2 * time.Second
	recordedLook = 5 * time.Millisecond
)

// awaitRecorded waits until the agent reports removed pods as such. Who asks for the pod after
// [Operator.Start] would else read how it had ended before.
func (o *Operator) awaitRecorded(ctx context.Context, removed []types.UID) {
	ctx, cancel := context.WithTimeout(ctx, recordedWait)
	defer cancel()
	for {
		list := o.deps.Pods.List()
		removed = slices.DeleteFunc(removed, func(uid types.UID) bool {
			e, known := list[uid]
			return !known || e.Recorded || !e.Unwanted
		})
		if len(removed) == 0 || !retry.Sleep(ctx, recordedLook) {
			return
		}
	}
}
