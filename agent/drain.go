package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/drain"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/client/api"
)

const (
	// reasonShutdown and messageShutdown are the status of a pod that a shutdown of the machine ended, in the kubelet's words.
	reasonShutdown  = "Terminated"
	messageShutdown = "Pod was terminated in response to imminent node shutdown."
	// reasonDrain and messageDrain are those of a pod that a drain stops, as long as it is there.
	reasonDrain  = "Drained"
	messageDrain = "Pod was stopped to drain the node."
	// endMargin is what ending a group of pods may take on top of their grace: tearing down sandboxes and volumes.
	endMargin = 15 * time.Second
	// endLook is between two looks whether a group has ended.
	endLook = 50 * time.Millisecond
)

// Drain begins to stop all pods of the node, in order, and returns; none starts from now on. With Hold it stays so over restarts of the agent, and pods that
// ended by themselves before stay on record; without, nothing of any pod is left.
func (a *Agent) Drain(req api.DrainRequest) error {
	if req.Hold {
		text, err := json.Marshal(req)
		if err == nil {
			err = os.WriteFile(a.gate.mark, text, 0o600)
		}
		if err != nil {
			return fmt.Errorf("marking the node as drained: %w", err)
		}
	}
	a.gate.begin(req)
	return nil
}

// Undrain lets pods run again, also while a drain is under way: pods that it has stopped come again as soon as they are gone, a stuck one whenever that is.
func (a *Agent) Undrain() error {
	if a.shutting.Load() {
		return errors.New("the machine shuts down: its pods run again when it is up")
	}
	if err := os.Remove(a.gate.mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the mark of a drained node: %w", err)
	}
	a.gate.undo(func() {
		for uid, e := range a.workers.List() {
			if !e.Forget && comesBack(e.Pod, e.Stop) {
				a.workers.Remove(uid)
			}
		}
	})
	return nil
}

// Drained says whether pods may run, and which are left where they may not.
func (a *Agent) Drained() api.Drain {
	state, since, hold := a.gate.now()
	d := api.Drain{State: state}
	if state == api.Open {
		return d
	}
	d.Since, d.Left = since, a.left(hold)
	return d
}

// left names the pods that are in the way of a drain: those that have not ended and, unless it holds, those that are on record.
func (a *Agent) left(hold bool) []string {
	var left []string
	for _, e := range a.workers.List() {
		if !hold || e.Phase != worker.Terminated || !finished(e) {
			left = append(left, e.Pod.Namespace+"/"+e.Pod.Name)
		}
	}
	return left
}

// finished reports whether a pod has come to its own end, or is about to, and somebody wants to know of it still: it must never run again.
func finished(e worker.Entry) bool {
	return !e.Waiting && !e.Forget && e.Phase != worker.Running && !comesBack(e.Pod, e.Stop)
}

// finishedOf returns those of the pods that have come to their ends here, and those that are to end: an API server waits to be told that nothing is left of a pod that
// was deleted, also of one that has never run.
func (a *Agent) finishedOf(pods map[podUID]*v1.Pod) map[podUID]*v1.Pod {
	known, out := a.workers.List(), map[podUID]*v1.Pod{}
	for uid, pod := range pods {
		if e, ok := known[uid]; ok && finished(e) || sourceOf(pod) == source.NameAPI && (pod.DeletionTimestamp != nil || terminal(&pod.Status)) {
			out[uid] = pod
		}
	}
	return out
}

// drains does the drains that are asked for.
func (a *Agent) drains(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case r := <-a.gate.asked:
			if err := a.empty(ctx, r); err != nil && ctx.Err() == nil {
				a.log.Info("the drain was undone", "err", err)
			} // else the agent ends; a mark has the next one go on
		}
	}
}

// empty stops the pods in order and forgets them, until it is undone.
func (a *Agent) empty(ctx context.Context, r drainRound) error {
	var grace *time.Duration
	if r.GraceSeconds != nil {
		d := time.Duration(*r.GraceSeconds) * time.Second
		grace = &d
	}
	a.log.Info("draining: the node's pods are stopped", "hold", r.Hold)
	unless := func(do func()) bool { return a.gate.during(r, do) }
	err := a.stopInOrder(ctx, drain.Unbounded(drain.Classes(&a.cfg.Kubelet), grace), worker.Stop{Reason: reasonDrain, Message: messageDrain}, unless)
	if err != nil {
		return err
	}
	a.toldAll(ctx) // what is forgotten is told before
	forget := func() {
		for uid, e := range a.workers.List() {
			if !r.Hold || !finished(e) {
				a.workers.Remove(uid)
			}
		}
	}
	if !unless(forget) {
		return errUndone
	}
	for len(a.left(r.Hold)) > 0 {
		if !tasks.Sleep(ctx, endLook) {
			return ctx.Err()
		}
		if !unless(func() {}) {
			return errUndone
		}
	}
	if a.gate.done(r) {
		a.log.Info("drained: no pod is left")
	}
	return nil
}

// Shutdown stops the node's pods because the machine shuts down: in order, within the times of the config, with their final status on record. The next
// agent starts them again. It returns when all have ended or their time is over, or with ctx.
func (a *Agent) Shutdown(ctx context.Context) error {
	a.shutting.Store(true)
	a.gate.close()
	a.nodeChanged()
	a.log.Info("the machine shuts down: the node's pods are stopped")
	began := time.Now()
	err := a.stopInOrder(ctx, drain.Classes(&a.cfg.Kubelet), worker.Stop{Reason: reasonShutdown, Message: messageShutdown}, always)
	a.toldAll(ctx)
	a.log.Info("pods stopped for the shutdown", "took", time.Since(began).Round(time.Millisecond), "err", err)
	return err
}

// ShutdownLimit is the longest that Shutdown takes.
func (a *Agent) ShutdownLimit() time.Duration {
	var sum time.Duration
	for _, c := range drain.Classes(&a.cfg.Kubelet) {
		sum += c.Grace + endMargin
	}
	return sum
}

// always does what it is given, for a stop that cannot be undone.
func always(do func()) bool {
	do()
	return true
}

// stopInOrder stops the pods, a group after the other. A group whose time is over does not hold up the next; that is only told. What it does, unless does, which
// reports false once the stop was undone.
func (a *Agent) stopInOrder(ctx context.Context, classes []drain.Class, stop worker.Stop, unless func(do func()) bool) error {
	for _, group := range drain.Order(a.stoppable(), classes) {
		begin := func() {
			for _, p := range group.Pods {
				s, grace := stop, int64(p.Grace/time.Second)
				s.Grace = &grace
				a.workers.Stop(p.UID, s)
			}
		}
		if !unless(begin) {
			return errUndone
		}
		waiting, cancel := context.WithTimeout(ctx, group.Longest+endMargin)
		err := a.awaitEnd(waiting, group, unless)
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
func (a *Agent) stoppable() []*v1.Pod {
	var out []*v1.Pod
	for _, e := range a.workers.List() {
		if !e.Waiting && e.Phase != worker.Terminated {
			out = append(out, e.Pod)
		}
	}
	return out
}

// awaitEnd returns when nothing of the group runs any more, or with ctx; the error is that the stop was undone.
func (a *Agent) awaitEnd(ctx context.Context, group drain.Group, unless func(do func()) bool) error {
	for {
		var left []string
		for _, p := range group.Pods {
			if e, ok := a.workers.Get(p.UID); ok && e.Phase != worker.Terminated {
				left = append(left, e.Pod.Namespace+"/"+e.Pod.Name)
			}
		}
		switch {
		case len(left) == 0:
			return nil
		case !unless(func() {}):
			return errUndone
		case !tasks.Sleep(ctx, endLook):
			a.log.Warn("pods did not end in time", "pods", left)
			return nil
		}
	}
}

// comesBack reports whether a pod that is stopped will be run again by the next agent, so that its phase must not be final: one of this node's own that a
// drain or a shutdown ends. A shutdown leaves out those whose policy is never to run twice; a drain forgets what it stopped.
func comesBack(pod *v1.Pod, stop *worker.Stop) bool {
	if stop == nil || sourceOf(pod) == source.NameAPI {
		return false
	}
	return stop.Reason == reasonDrain || stop.Reason == reasonShutdown && pod.Spec.RestartPolicy != v1.RestartPolicyNever
}

// disruption is the reason of the condition DisruptionTarget of a pod that was stopped for the node's sake; empty for others. By it a Job tells such an end from a
// failure of its own.
func disruption(stop *worker.Stop) string {
	if stop.Reason == reasonShutdown || stop.Reason == reasonDrain {
		return v1.PodReasonTerminationByKubelet
	}
	return ""
}

// revive makes the record of a pod that a shutdown or a drain ended, or was about to when the agent ended itself, one of a pod that is to run again, unless it
// came to its end by that or nobody wants it any more. It reports whether it did.
func revive(rec *checkpoint.Record) bool {
	if !comesBack(rec.Pod, rec.Stop) || !rec.Leaving.IsZero() || rec.Status != nil && terminal(rec.Status) {
		return false
	}
	rec.Stop, rec.Ended, rec.InitializedIn = nil, false, ""
	rec.PostStart, rec.Stops, rec.StartFailed, rec.Condemned, rec.Backoff, rec.RestartAll = nil, nil, nil, nil, nil, nil
	rec.Probes = nil
	if rec.Status != nil {
		s := rec.Status.DeepCopy()
		s.Reason, s.Message = "", ""
		rec.Status = s
	}
	return true
}
