package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/timeline"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/status"
)

// ladder is a pod's life, in order: bring-up reads it downwards, take-down upwards.
func (a *Agent) ladder() []steps.Step {
	return []steps.Step{
		steps.Admit{Others: a.admittedBeside, MaxPods: a.node.MaxPods(), Lock: &a.admission, Save: a.saveAdmission},
		steps.Dirs{Volumes: a.volumes, PodLogsDir: a.cfg.Kubelet.PodLogsDir, LinksDir: a.cfg.Berth.ContainerLogsDir},
		steps.Cgroup{Cgroups: a.deps.Cgroups},
		steps.Volumes{Manager: a.volumes, Events: a.events, HostIPs: a.node.HostIPs},
		steps.Sandbox{Runtime: a.deps.Runtime, Node: a.node.Generate, Resources: a.deps.Cgroups.SandboxResources, Events: a.events, RootDir: a.cfg.RootDir, Stopper: a.stopper},
		steps.Images{Manager: a.images},
		steps.Init{Starter: a.starter},
		steps.Containers{Starter: a.starter, Stopper: a.stopper},
		steps.Probes{Manager: a.probes, HostIPs: a.node.HostIPs},
	}
}

// pass makes one pass over one pod: observe, decide, walk the ladder, derive the status, write the checkpoint. It runs on the pod's worker.
func (a *Agent) pass(ctx context.Context, work worker.Work) worker.Result {
	began := time.Now()
	st := a.pods.state(work.UID)
	p := a.newPass(work, st)
	if !placeholder(p.Pod) && st.record.Pod != p.Pod {
		st.record.Pod = p.Pod
	}
	if files := a.files.Load(); files != nil && (*files)[work.UID] != "" {
		st.record.File = (*files)[work.UID]
	}
	var err error
	if p.Observed, err = a.observer.Pod(ctx, work.UID); err != nil {
		a.note(work.UID, "observe", began, steps.Outcome{}, err)
		return worker.Result{Err: err}
	}
	a.collect(p)
	var res worker.Result
	switch {
	case work.Phase == worker.Running && placeholder(p.Pod):
		return worker.Result{} // found in the runtime, and no source has claimed or disowned it yet
	case work.Phase == worker.Running:
		if p.Record.Status == nil || died(p) {
			_ = a.derive(p, work, res) // a new pod and an ended container are told of at once; the one below tells the error
		}
		res = a.up(ctx, p)
	default:
		res = a.down(ctx, p, work)
	}
	if ctx.Err() != nil {
		return worker.Result{Err: context.Cause(ctx)}
	}
	if p.Changed {
		if observed, err := a.observer.Pod(ctx, work.UID); err == nil {
			p.Observed = observed
		}
		if work.Phase == worker.Running && res.Err == nil && !res.Finished {
			// What was changed may be what the next rung waits for, and the event about it may never come.
			res.RetryAt = earlier(res.RetryAt, time.Now())
		}
	}
	if p.Forget {
		_ = p.Save() // the record goes anyway
	} else if err := a.derive(p, work, res); err != nil {
		res.Err = errors.Join(res.Err, err)
		// An end that is not on record would let the pod run again after a restart. One that is to be forgotten may go on: it frees the full disk.
		res.Done = res.Done && work.Forget
	}
	if res.Err != nil {
		p.Log.Error("pass failed; it is tried again", "phase", work.Phase, "err", res.Err)
	}
	a.metrics.Pass(operation(work.Phase), time.Since(began))
	return res
}

func (a *Agent) newPass(work worker.Work, st *podState) *steps.Pass {
	p := &steps.Pass{
		Pod: work.Pod, Record: st.record, Tasks: st.tasks, Stop: work.Stop,
		Log:     a.log.With("pod", work.Pod.Namespace+"/"+work.Pod.Name, "uid", work.UID),
		Waiting: map[string]status.Reason{}, Started: map[string]string{},
	}
	p.Save = func() error { return a.saveRecord(p.Record) }
	return p
}

// collect takes notice of how the pod's tasks ended.
func (a *Agent) collect(p *steps.Pass) {
	ended := p.Tasks.Collect()
	for id := range p.Record.PostStart {
		if err, ok := ended[steps.PostStartTask(id)]; ok && err == nil {
			delete(p.Record.PostStart, id)
		}
	}
	if len(p.Record.PostStart) > 0 {
		live := map[string]bool{}
		for _, c := range p.Observed.Containers {
			live[c.Id] = c.Running()
		}
		for id := range p.Record.PostStart {
			if !live[id] {
				delete(p.Record.PostStart, id)
			}
		}
	}
}

// decide gathers what a decision depends on.
func (a *Agent) decide(p *steps.Pass) plan.Input {
	in := plan.Input{
		Pod: p.Pod, Observed: p.Observed, Hash: containerHash,
		Probes: map[string]plan.ProbeState{}, Busy: map[string]plan.Operation{},
		Backoff: p.Record.Backoff, RestartFloor: plan.RestartFloors(p.Record.Status), Ended: plan.Ended(p.Record.Status),
		InitializedIn: p.Record.InitializedIn, Limits: a.limits, Now: time.Now(),
	}
	for name, r := range a.probes.Results(p.Pod.UID) {
		in.Probes[name] = plan.ProbeState{ContainerID: r.ContainerID, Started: r.Started, Failed: string(r.Failed)}
	}
	active := p.Tasks.Active()
	for _, c := range p.Observed.Containers {
		if _, ok := active[steps.StopTask(c.Id)]; ok {
			in.Busy[c.Id] = plan.Stopping
		} else if _, ok := active[steps.PostStartTask(c.Id)]; ok {
			in.Busy[c.Id] = plan.PostStart
		}
	}
	return in
}

// up walks the ladder downwards: everything that the pod needs is brought up, or kept up.
func (a *Agent) up(ctx context.Context, p *steps.Pass) worker.Result {
	if p.Record.Ended {
		return worker.Result{Finished: true} // it ran to its end in an earlier life of the agent
	}
	a.starter.Resume(p)
	p.Actions = plan.Decide(a.decide(p))
	if p.Actions.Finished {
		return worker.Result{Finished: true}
	}
	if p.Actions.CreateSandbox || len(p.Actions.Start) > 0 {
		release, err := a.slots.Acquire(ctx)
		if err != nil {
			return worker.Result{Err: err}
		}
		defer release()
	}
	var res worker.Result
	for _, step := range a.steps {
		began := time.Now()
		out, err := step.Ensure(ctx, p)
		a.note(p.Pod.UID, step.Name(), began, out, err)
		res.RetryAt = earlier(res.RetryAt, out.RetryAt)
		if r := (*steps.Rejection)(nil); errors.As(err, &r) {
			return a.rejected(p, r)
		}
		if err != nil {
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

// goesOn reports whether the steps behind a failed one may still be walked: init and containers fail for one container and not for the others.
func goesOn(step steps.Step) bool {
	switch step.(type) {
	case steps.Init, steps.Containers:
		return true
	}
	return false
}

// rejected ends a pod that must not run.
func (a *Agent) rejected(p *steps.Pass, r *steps.Rejection) worker.Result {
	if p.Record.Rejected == nil {
		p.Record.Rejected = &checkpoint.Rejected{Reason: r.Reason, Message: r.Message}
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
		out, err := step.Remove(ctx, p)
		a.note(p.Pod.UID, "remove "+step.Name(), began, out, err)
		res.RetryAt = earlier(res.RetryAt, out.RetryAt)
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

// earlier returns the earlier of two times, of which the zero time means never.
func earlier(x, y time.Time) time.Time {
	if x.IsZero() || !y.IsZero() && y.Before(x) {
		return y
	}
	return x
}
