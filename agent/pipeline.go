package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/timeline"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/status"
)

// ladder is a pod's life, in order: bring-up reads it downwards, take-down upwards.
func (a *Agent) ladder() []steps.Step {
	return []steps.Step{
		steps.Objects{Use: a.podObjects.use, Drop: a.podObjects.drop},
		steps.RuntimeClass{Get: a.podObjects.runtimeClass, Given: source.Bound, Events: a.events},
		steps.Admit{Others: a.admittedBeside, Waits: a.allocations.wait, Allocatable: a.node.Allocatable(), Node: a.node.Admission, Events: a.events, Lock: &a.admission, Save: a.saveAdmission},
		steps.Dirs{Volumes: a.volumes, PodLogsDir: a.cfg.Kubelet.PodLogsDir, LinksDir: a.cfg.Berth.ContainerLogsDir},
		steps.Cgroup{Cgroups: a.deps.Cgroups},
		steps.Volumes{Manager: a.volumes, Events: a.events, HostIPs: a.node.HostIPs},
		steps.Sandbox{Runtime: a.deps.Runtime, Node: a.generate, Resources: a.deps.Cgroups.SandboxResources, Handler: a.handler, Events: &nodeOnce{Recorder: a.events}, RootDir: a.cfg.RootDir, Stopper: a.stopper, UserNamespaces: a.userNamespaces()},
		a.resizeStep(),
		steps.Images{Manager: a.images},
		steps.ImageVolumes{Images: a.images, Supported: a.imageVolumes},
		steps.Init{Starter: a.starter},
		steps.Containers{Starter: a.starter, Stopper: a.stopper},
		steps.Probes{Manager: a.probes, HostIPs: a.node.HostIPs},
	}
}

// pass makes one pass over one pod: observe, decide, walk the ladder, derive the status, write the checkpoint. It runs on the pod's worker.
func (a *Agent) pass(ctx context.Context, work worker.Work) (res worker.Result) {
	if a.pruning.has(work.UID) {
		return worker.Result{RetryAt: time.Now().Add(pruneWait)} // the pod would be made where something is being removed
	}
	name, updateType := traced(work.Phase)
	ctx, end := a.deps.Tracing.Pass(ctx, name, updateType, work.Pod)
	defer func() { end(res.Err) }()
	began := time.Now()
	st := a.pods.state(work.UID)
	p := a.newPass(work, st)
	a.takeNotice(p, work)
	steps.Collect(p)
	if work.Phase != worker.Running {
		a.noteEnd(p, work)
	}
	a.timeline.Begin(work.UID, server.ObserveStep, began)
	defer a.timeline.End(work.UID)
	if err := a.observe(ctx, p); err != nil {
		a.note(work.UID, server.ObserveStep, began, steps.Outcome{}, err)
		return worker.Result{Err: err}
	}
	steps.Settle(ctx, p)
	switch {
	case work.Phase == worker.Running && placeholder(p.Pod):
		return worker.Result{} // found in the runtime, and no source has claimed or disowned it yet
	case work.Phase == worker.Running && a.inherit(p, st):
		return worker.Result{RetryAt: a.begun.Add(inheritWait)}
	case work.Phase == worker.Running && a.toldEarly(p, work):
		return worker.Result{RetryAt: time.Now().Add(earlyWait)} // should the second event, which wakes the worker, be lost
	case work.Phase == worker.Running:
		begins := p.Record.Status == nil || p.Record.Status.StartTime == nil
		if begins {
			a.tellBackoff(p.Pod)
		}
		if begins || died(p) {
			_ = a.derive(p, work, res) // a new pod and an ended container are told of at once; the one below tells the error
		}
		res = a.up(ctx, p, &st.active)
	default:
		res = a.down(ctx, p, work)
	}
	if ctx.Err() != nil {
		return worker.Result{Err: context.Cause(ctx)}
	}
	if p.Changed {
		_ = a.observe(ctx, p) // what it has seen before will do
		if work.Phase == worker.Running && res.Err == nil && !res.Finished {
			// What was changed may be what the next rung waits for, and the event about it may never come.
			res.RetryAt = steps.Earlier(res.RetryAt, time.Now())
		}
	}
	if p.Forget {
		_ = p.Save() // the record goes anyway
	} else if err := a.derive(p, work, res); err != nil {
		res.Err = errors.Join(res.Err, err)
		// An end that is not on record would let the pod run again after a restart. One that is to be forgotten may go on: it frees the full disk.
		res.Done = res.Done && work.Forget
	} else if p.Record.Ended {
		a.status.End(work.UID)
		a.roomLeft()
	}
	switch {
	case res.Err == nil && st.trouble.over():
		p.Log.Info("pass succeeded again", "phase", work.Phase)
	case res.Err != nil && st.trouble.worth(res.Err, time.Now()):
		p.Log.Error("pass failed; it is tried again", "phase", work.Phase, "err", res.Err)
	}
	a.metrics.Pass(operation(work.Phase), time.Since(began))
	return res
}

// takeNotice takes notice of what is wanted of the pod now: by its source, and by those who add ephemeral containers to it. What is saved here must be whole: a pod that is
// wanted with other resources has its resize on record from the moment that it is on record itself, or the next agent takes them for what it has.
func (a *Agent) takeNotice(p *steps.Pass, work worker.Work) {
	before := p.Record.Pod
	if !placeholder(work.Pod) {
		p.Record.Pod = work.Pod
	}
	if files := a.files.Load(); files != nil && (*files)[work.UID] != "" {
		p.Record.File = (*files)[work.UID]
	}
	beginResize(p, before)
	a.tellMissing(p, before)
	a.addEphemeral(p, work)
	withAllocated(p)
}

func (a *Agent) newPass(work worker.Work, st *podState) *steps.Pass {
	p := &steps.Pass{
		Pod: a.ephemerals.with(work.Pod), Record: st.record, Unmounted: &st.unmounted, Tasks: st.tasks, Stop: work.Stop,
		Log:     a.log.With("pod", work.Pod.Namespace+"/"+work.Pod.Name, "uid", work.UID),
		Waiting: map[string]status.Reason{}, Started: map[string]string{},
	}
	p.Save = func() error { return a.saveRecord(p.Record) }
	return p
}

// observe looks at what the runtime has of the pod.
func (a *Agent) observe(ctx context.Context, p *steps.Pass) error {
	observed, err := a.observer.Pod(ctx, p.Pod.UID)
	if err == nil {
		p.Observed = steps.Unstarted(observed, p.Record)
	}
	return err
}

// decide gathers what a decision depends on.
func (a *Agent) decide(p *steps.Pass) plan.Input {
	in := plan.Input{
		Pod: p.Pod, Observed: p.Observed, Hash: containerHash,
		Probes: map[string]plan.ProbeState{}, Busy: map[string]plan.Operation{},
		Backoff: p.Record.Backoff, RestartFloor: plan.RestartFloors(p.Record.Status), Ended: plan.Ended(p.Record.Status),
		Resize: restartsFor(p), Stops: p.Record.Stops, InitializedIn: p.Record.InitializedIn, Condemned: p.Record.Condemned, Limits: a.limits(p.Pod), Now: time.Now(),
	}
	if r := p.Record.RestartAll; r != nil {
		in.RestartingAll, in.Hold = r.Cleaning, r.Hold
		for name := range r.Removed {
			delete(in.Ended, name) // what was removed to start again has not ended, whatever the last status says
		}
	}
	for name, r := range a.probes.Results(p.Pod.UID) {
		in.Probes[name] = plan.ProbeState{ContainerID: r.ContainerID, Started: r.Started, Failed: string(r.Failed)}
	}
	for _, c := range p.Observed.Containers {
		if op := p.Busy(c.Id); op != "" {
			in.Busy[c.Id] = op
		}
	}
	return in
}

// up brings up everything that the pod needs, or keeps it up, unless the pod is over.
func (a *Agent) up(ctx context.Context, p *steps.Pass, active *plan.Active) worker.Result {
	if p.Record.Ended {
		return worker.Result{Finished: true} // it ran to its end in an earlier life of the agent
	}
	if a.heldBack(p) {
		return worker.Result{}
	}
	a.starter.Resume(p)
	retry, err := a.allocate(p)
	if err != nil {
		return worker.Result{Err: err}
	}
	p.Actions = plan.Decide(a.decide(p))
	a.stopper.Resume(ctx, p)
	if p.Actions.Finished {
		return worker.Result{Finished: true}
	}
	deadline, passed := active.Deadline(p.Pod, p.Record.Status, time.Now())
	if passed {
		return a.deadlineExceeded(p)
	}
	res, alone := a.restartAll(ctx, p)
	if !alone {
		res = a.walk(ctx, p)
	}
	res.RetryAt = steps.Earlier(steps.Earlier(res.RetryAt, deadline), retry)
	return res
}

// deadlineExceeded ends a pod that has been active for as long as it may be, with the kubelet's words.
func (a *Agent) deadlineExceeded(p *steps.Pass) worker.Result {
	const reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	a.events.Pod(p.Pod, "", v1.EventTypeNormal, reason, message)
	return worker.Result{Finished: true, Why: worker.Stop{Reason: reason, Message: message}}
}

// walk walks the ladder downwards as plan decided.
func (a *Agent) walk(ctx context.Context, p *steps.Pass) worker.Result {
	if p.Actions.CreateSandbox || len(p.Actions.Start) > 0 {
		a.timeline.Begin(p.Pod.UID, server.SlotStep, time.Now())
		release, err := a.slots.Acquire(ctx)
		if err != nil {
			return worker.Result{Err: err}
		}
		defer release()
	}
	var res worker.Result
	private := p.Actions.CreateSandbox && p.Pod.Spec.HostUsers != nil && !*p.Pod.Spec.HostUsers
	for _, step := range a.steps {
		began := time.Now()
		a.timeline.Begin(p.Pod.UID, step.Name(), began)
		inside, end := a.deps.Tracing.Step(ctx, step.Name())
		out, err := step.Ensure(inside, p)
		end(err)
		a.note(p.Pod.UID, step.Name(), began, out, err)
		if _, ok := step.(steps.Sandbox); ok && private {
			a.metrics.UserNamespaced(err)
		}
		res.RetryAt = steps.Earlier(res.RetryAt, out.RetryAt)
		if r := (*steps.Rejection)(nil); errors.As(err, &r) {
			return a.rejected(p, r)
		}
		if err != nil {
			if _, ok := step.(steps.Sandbox); ok {
				a.expectLeftovers()
			}
			res.Err = fmt.Errorf("%s: %w", step.Name(), err)
			p.Problem = status.Reason{Reason: step.Name(), Message: err.Error()}
			if !goesOn(step) {
				return res
			}
		}
		if out.Halt {
			return res
		}
	}
	return res
}

// goesOn reports whether the steps behind a failed one may still be walked: init and containers fail for one container and not for the others, and a
// pod that cannot be resized goes on as it is.
func goesOn(step steps.Step) bool {
	switch step.(type) {
	case steps.Init, steps.Containers, steps.Resize:
		return true
	}
	return false
}

// rejected ends a pod that must not run.
func (a *Agent) rejected(p *steps.Pass, r *steps.Rejection) worker.Result {
	if p.Record.Rejected == nil {
		p.Record.Rejected = &checkpoint.Rejected{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
	}
	a.events.Pod(p.Pod, "", "Warning", r.Reason, r.Message)
	a.metrics.Rejected(r.Reason)
	return worker.Result{Finished: true}
}

// down walks the ladder upwards: everything that the pod holds is given back, even where it was never brought up. A step that fails does not
// keep the others from giving back what is theirs, except that nothing is taken away from under a running container.
func (a *Agent) down(ctx context.Context, p *steps.Pass, work worker.Work) worker.Result {
	p.Forget = work.Phase == worker.Terminated
	p.Actions = plan.DecideStop(a.decide(p))
	var errs []error
	var res worker.Result
	halted := false
	for _, step := range slices.Backward(a.steps) {
		began := time.Now()
		a.timeline.Begin(p.Pod.UID, server.RemovePrefix+step.Name(), began)
		inside, end := a.deps.Tracing.Step(ctx, server.RemovePrefix+step.Name())
		out, err := step.Remove(inside, p)
		end(err)
		a.note(p.Pod.UID, server.RemovePrefix+step.Name(), began, out, err)
		res.RetryAt = steps.Earlier(res.RetryAt, out.RetryAt)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", step.Name(), err))
		}
		if out.Halt {
			halted = true
			break
		}
	}
	res.Err = errors.Join(errs...)
	res.Done = !halted && res.Err == nil
	if res.Done && work.Phase == worker.Terminating {
		p.Record.Ended = true
	}
	return res
}

// operation names a pass by its phase as kubelet_pod_worker_duration_seconds does.
func operation(phase worker.Phase) string {
	switch phase {
	case worker.Running:
		return "sync"
	case worker.Terminating:
		return "terminating"
	default:
		return "terminated"
	}
}

// traced names a pass by its phase as the kubelet's spans are named, and what it says of why.
func traced(phase worker.Phase) (name, updateType string) {
	switch phase {
	case worker.Running:
		return "syncPod", "sync"
	case worker.Terminating:
		return "syncTerminatingPod", "kill"
	default:
		return "syncTerminatedPod", "kill"
	}
}

// note writes a step's outcome to the pod's timeline and the metrics.
func (a *Agent) note(uid podUID, step string, began time.Time, out steps.Outcome, err error) {
	e := timeline.Entry{Step: step, Begin: began, End: time.Now(), Outcome: timeline.Done, Message: out.Note}
	switch {
	case err != nil:
		e.Outcome, e.Message = timeline.Failed, err.Error()
	case out.Waiting != "":
		e.Outcome, e.Message = timeline.Wait, out.Waiting
	}
	a.timeline.Add(uid, e)
	a.metrics.Step(step, string(e.Outcome), e.End.Sub(began))
}
