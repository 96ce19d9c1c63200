package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

const (
	// endMargin is the time that the end of a group of pods may take beyond the pods' grace, for
	// the removal of sandboxes and volumes.
	endMargin = 15 * time.Second
	// endLook is the time between two looks at whether a group has ended.
	endLook = 50 * time.Millisecond
)

// shutdownStop is the stop of a pod that a shutdown of the machine ends, in the kubelet's words.
func shutdownStop() worker.Stop {
	return worker.Stop{
		Cause:   worker.CauseShutdown,
		Reason:  "Terminated",
		Message: "Pod was terminated in response to imminent node shutdown.",
	}
}

// drainStop is the stop of a pod that a drain ends. The pod's status has the reason as long as the
// pod exists.
func drainStop() worker.Stop {
	return worker.Stop{Cause: worker.CauseDrain, Reason: pods.ReasonDrained, Message: "Pod was stopped to drain the node."}
}

// Pods has the operations on workers that a drainer uses; *worker.Pool implements it.
type Pods interface {
	List() map[types.UID]worker.Entry
	Get(uid types.UID) (worker.Entry, bool)
	Stop(uid types.UID, stop worker.Stop)
	Remove(uid types.UID)
}

// Deps are what a drainer works with.
type Deps struct {
	Pods Pods
	Gate *Gate
	// Config has the graces of a shutdown.
	Config *kubeletconfigv1beta1.KubeletConfiguration
	// Reported waits until the API server has heard of every status. If the API server does not
	// answer, Reported gives up.
	Reported func(ctx context.Context)
	// NodeChanged says that the node's readiness has changed.
	NodeChanged func()
	Logger      *slog.Logger
}

// Drainer stops all pods of the node and keeps them stopped: for a drain, or because the machine
// shuts down. Make it with [NewDrainer]; it is safe for concurrent use.
type Drainer struct {
	deps Deps
	gate *Gate
	log  *slog.Logger
}

// NewDrainer returns a drainer. [Drainer.Run] does the drains.
func NewDrainer(deps Deps) *Drainer {
	return &Drainer{deps: deps, gate: deps.Gate, log: deps.Logger}
}

// Drain begins to stop all pods of the node, in order, and returns. No pod starts from now on. With
// Hold, no pod starts after a restart of the agent either, and the records and logs of pods that
// are still wanted stay. Without Hold, nothing of any pod is left.
func (d *Drainer) Drain(req Request) error {
	if req.Hold {
		if err := d.gate.mark(req); err != nil {
			return err
		}
	}
	d.gate.begin(req)
	return nil
}

// Undrain lets pods run again, even while a drain is under way. A pod that the drain has stopped
// comes back as soon as it is gone; for a stuck pod, this may take long.
func (d *Drainer) Undrain() error {
	if d.gate.ShuttingDown() {
		return errors.New("the machine shuts down: its pods run again when it is up")
	}
	if err := d.gate.unmark(); err != nil {
		return err
	}
	d.gate.undo(d.removeStopped)
	return nil
}

// Progress is the progress of a drain.
type Progress struct {
	State State
	// Since is when the state began; zero where pods may run.
	Since time.Time
	// Left names the pods that the drain waits for, as NAMESPACE/NAME, in any order.
	Left []string
}

// Drained returns whether pods may run. If pods may not run, Drained also names the pods that are
// left.
func (d *Drainer) Drained() Progress {
	state, since, hold := d.gate.now()
	if state == Open {
		return Progress{State: state}
	}
	return Progress{State: state, Since: since, Left: d.left(hold)}
}

// left names the pods that a drain waits for: the pods that have not ended or are being removed
// and, unless the drain holds, the pods that are on record.
func (d *Drainer) left(hold bool) []string {
	var left []string
	for _, e := range d.deps.Pods.List() {
		if !hold || e.Phase != worker.Terminated || !Kept(e) {
			left = append(left, pods.FullName(e.Pod))
		}
	}
	return left
}

// Kept reports whether a pod has ended, or is about to, and somebody still wants to know of the
// pod. A drain that holds keeps the records and logs of such a pod.
func Kept(e worker.Entry) bool { return !e.Waiting && !e.Unwanted && e.Phase != worker.Running }

// Run does the drains that are asked for until ctx ends.
func (d *Drainer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-d.gate.asked:
			if err := d.empty(ctx, r); err != nil && ctx.Err() == nil {
				d.log.Info("the drain was undone", "err", err)
			} // else the agent ends; with a marker, the next agent goes on
		}
	}
}

// empty stops the pods in order, and forgets those that the drain does not keep, until the drain is
// undone.
func (d *Drainer) empty(ctx context.Context, r round) error {
	var grace *time.Duration
	if r.GraceSeconds != nil {
		own := time.Duration(*r.GraceSeconds) * time.Second
		grace = &own
	}
	d.log.Info("draining: the node's pods are stopped", "hold", r.Hold)
	unless := func(do func()) bool { return d.gate.during(r, do) }
	o := order{Unbounded(Classes(d.deps.Config), grace), drainStop(), withMargin, unless}
	if err := d.stopInOrder(ctx, o); err != nil {
		return err
	}
	d.deps.Reported(ctx) // a pod is reported before it is forgotten
	forget := func() {
		for uid, e := range d.deps.Pods.List() {
			if !r.Hold || !Kept(e) {
				d.deps.Pods.Remove(uid)
			}
		}
	}
	if !unless(forget) {
		return errUndone
	}
	for len(d.left(r.Hold)) > 0 {
		if !retry.Sleep(ctx, endLook) {
			return ctx.Err()
		}
		if !unless(func() {}) {
			return errUndone
		}
	}
	if d.gate.done(r) {
		d.log.Info("drained: no pod runs")
	}
	return nil
}

// Shutdown stops the node's pods because the machine shuts down: in order, within the times of the
// config, with their final status on record. The next agent starts the pods again. Shutdown returns
// when all pods have ended, when their time is over, or when ctx ends. A second call goes on with
// the pods that are left.
func (d *Drainer) Shutdown(ctx context.Context) error {
	return d.shutdown(ctx, withMargin)
}

// ShutdownInTime is [Drainer.Shutdown] for a machine that waits no longer than the sum of the
// classes' times: the next class's turn comes when the time of its predecessor is over.
func (d *Drainer) ShutdownInTime(ctx context.Context) error {
	return d.shutdown(ctx, func(g Group) time.Duration { return g.Time })
}

func (d *Drainer) shutdown(ctx context.Context, wait func(Group) time.Duration) error {
	d.gate.close()
	d.deps.NodeChanged()
	d.log.Info("the machine shuts down: the node's pods are stopped")
	began := time.Now()
	err := d.stopInOrder(ctx, order{Classes(d.deps.Config), shutdownStop(), wait, always})
	d.deps.Reported(ctx)
	d.log.Info("pods stopped for the shutdown", "took", time.Since(began).Round(time.Millisecond), "err", err)
	return err
}

// Resume undoes a shutdown that the machine has given up: the pods of manifests that it stopped run
// again. Pods that had to end for good stay as they are.
func (d *Drainer) Resume() {
	d.gate.reopen(d.removeStopped)
	d.deps.NodeChanged()
	d.log.Info("the machine does not shut down: the node's pods run again")
}

// removeStopped removes the pods that a drain or a shutdown stopped and that run again, so that
// they get new workers. A pod that an operator has stopped stays as it is.
func (d *Drainer) removeStopped() {
	for uid, e := range d.deps.Pods.List() {
		if !e.Unwanted && e.Stop.ComesBack(e.Pod) && e.Stop.Cause != worker.CauseOperator {
			d.deps.Pods.Remove(uid)
		}
	}
}

// ShutdownLimit is the longest that Shutdown takes.
func (d *Drainer) ShutdownLimit() time.Duration {
	var sum time.Duration
	for _, c := range Classes(d.deps.Config) {
		sum += c.Grace + endMargin
	}
	return sum
}

// always calls do, for a stop that cannot be undone.
func always(do func()) bool {
	do()
	return true
}

// withMargin returns how long the end of a group may take if nothing presses.
func withMargin(g Group) time.Duration { return g.Longest + endMargin }

// order says how all pods of the node are stopped.
type order struct {
	classes []Class
	stop    worker.Stop
	// wait returns how long the next group waits for a group.
	wait func(Group) time.Duration
	// unless does every part of the stop, and returns false once the stop was undone.
	unless func(do func()) bool
}

// stopInOrder stops the pods, one group after the other. A group whose time is over does not hold
// up the next group; stopInOrder only logs that.
func (d *Drainer) stopInOrder(ctx context.Context, o order) error {
	for _, group := range Order(d.stoppable(), o.classes) {
		begin := func() {
			for _, p := range group.Pods {
				s, grace := o.stop, int64(p.Grace/time.Second)
				s.Grace = &grace
				d.deps.Pods.Stop(p.UID, s)
			}
		}
		if !o.unless(begin) {
			return errUndone
		}
		waiting, cancel := context.WithTimeout(ctx, o.wait(group))
		err := d.awaitEnd(waiting, group, o.unless)
		cancel()
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("stopping the node's pods: %w", context.Cause(ctx))
		}
	}
	return nil
}

// stoppable returns the pods that have not ended.
func (d *Drainer) stoppable() []*v1.Pod {
	var out []*v1.Pod
	for _, e := range d.deps.Pods.List() {
		if !e.Waiting && e.Phase != worker.Terminated {
			out = append(out, e.Pod)
		}
	}
	return out
}

// awaitEnd returns when nothing of the group runs any more, or when ctx ends. It returns an error
// if the stop was undone.
func (d *Drainer) awaitEnd(ctx context.Context, group Group, unless func(do func()) bool) error {
	for {
		var left []string
		for _, p := range group.Pods {
			if e, ok := d.deps.Pods.Get(p.UID); ok && e.Phase != worker.Terminated {
				left = append(left, pods.FullName(e.Pod))
			}
		}
		switch {
		case len(left) == 0:
			return nil
		case !unless(func() {}):
			return errUndone
		case !retry.Sleep(ctx, endLook):
			d.log.Warn("pods did not end in time", "pods", left)
			return nil
		}
	}
}
