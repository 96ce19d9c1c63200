package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// podSync is one sync of one pod under way: the data that the stages and steps share, and the
// result for the worker.
type podSync struct {
	*steps.Sync
	work  worker.Work
	state *state
	began time.Time
	// res is the result so far.
	res worker.Result
	// halted says that a step on the way down holds back the steps after it.
	halted bool
	// wantedSandbox says that plan wanted a new sandbox.
	wantedSandbox bool
	// release gives back the pod's place among the pods that start.
	release func()
}

// Sync makes one sync of a pod: it carries out the pipeline. Sync runs on the pod's worker. A panic
// fails only this sync.
func (e *Engine) Sync(ctx context.Context, work worker.Work) (res worker.Result) {
	defer func() {
		if what := recover(); what != nil {
			res = worker.Result{Err: e.caught(work.UID, what)}
		}
	}()
	res = e.sync(ctx, work)
	e.reportOverdue(work, &res)
	return res
}

func (e *Engine) sync(ctx context.Context, work worker.Work) worker.Result {
	name, updateType := spanOf(work.Phase)
	ctx, end := e.deps.Tracing.Sync(ctx, name, updateType, work.Pod)
	s := e.newSync(work)
	defer func() { end(s.res.Err) }()
	defer e.deps.Timeline.End(work.UID)
	defer func() { s.release() }() // also below; this one is for a step that panics
	if !e.runAll(ctx, e.pipeline.look, s) {
		return s.res
	}
	if e.runAll(ctx, e.pipeline.decide, s) {
		if work.Phase == worker.Running {
			e.bringUp(ctx, s)
		} else {
			e.takeDown(ctx, s)
		}
	}
	s.release()
	if ctx.Err() != nil {
		s.res = worker.Result{Err: context.Cause(ctx)}
		return s.res
	}
	for _, st := range e.pipeline.report {
		_, err := e.runStage(ctx, st, s)
		s.res.Err = errors.Join(s.res.Err, err)
	}
	e.deps.Metrics.Synced(operation(work.Phase), time.Since(s.began))
	return s.res
}

func (e *Engine) newSync(work worker.Work) *podSync {
	st := e.states.of(work.UID)
	s := &podSync{work: work, state: st, began: time.Now(), release: func() {}, Sync: &steps.Sync{
		Given: steps.Given{
			Pod: e.ephemerals.with(work.Pod), Record: st.record, Unmounted: &st.unmounted, Tasks: st.tasks,
			Leftovers: st.leftovers, Looks: e.deps.Looks, Stop: work.Stop, Terminated: work.Phase == worker.Terminated,
			Log: e.log.With("pod", pods.FullName(work.Pod), "uid", work.UID),
		},
		Found: steps.Found{Waiting: map[string]status.Reason{}},
		Made:  steps.Made{Started: map[string]string{}},
	}}
	s.Save = func() error { return e.save(s.Record) }
	return s
}

// runAll runs stages in order, and reports whether all of them let the sync go on.
func (e *Engine) runAll(ctx context.Context, stages []stage, s *podSync) bool {
	for _, st := range stages {
		out, err := e.runStage(ctx, st, s)
		s.res.RetryAt = steps.Earlier(s.res.RetryAt, out.RetryAt)
		s.res.Finished, s.res.Why = out.Finished, out.Why
		s.res.Err = err
		if err != nil || out.Halt || out.Finished {
			return false
		}
	}
	return true
}

// runStage runs one stage, if the pod goes through the stage in its phase.
func (e *Engine) runStage(ctx context.Context, st stage, s *podSync) (steps.Outcome, error) {
	if !st.of(s.work.Phase) {
		return steps.Outcome{}, nil
	}
	if !st.timed {
		return st.run(ctx, s)
	}
	began := time.Now()
	e.deps.Timeline.Begin(s.work.UID, st.name, began)
	out, err := st.run(ctx, s)
	if err != nil || out.Waiting != "" { // else the stage is under way until the next one begins
		e.note(s, st.name, began, out, err)
	}
	return out, err
}

// bringUp walks the steps downwards. The steps bring up, or keep up, everything that the pod needs.
func (e *Engine) bringUp(ctx context.Context, s *podSync) {
	for _, step := range e.pipeline.steps {
		out, err := e.walk(ctx, s, step.Name(), step.Ensure)
		if step.ensured != nil {
			step.ensured(s, err)
		}
		s.res.RetryAt = steps.Earlier(s.res.RetryAt, out.RetryAt)
		if r := (*steps.Rejection)(nil); errors.As(err, &r) {
			e.reject(s, r)
			return
		}
		if err != nil {
			s.res.Err = errors.Join(s.res.Err, fmt.Errorf("%s: %w", step.Name(), err))
			s.Problem = problemOf(step.Name(), err)
			if !step.goesOn {
				return
			}
		}
		if out.Halt {
			return
		}
	}
}

// takeDown walks the steps upwards. The steps give back everything that the pod holds, even if a
// step never brought anything up. If a step fails, the other steps still give back their parts; but
// nothing that a running container uses is taken away.
func (e *Engine) takeDown(ctx context.Context, s *podSync) {
	var errs []error
	for _, step := range slices.Backward(e.pipeline.steps) {
		out, err := e.walk(ctx, s, timeline.RemovePrefix+step.Name(), step.Remove)
		s.res.RetryAt = steps.Earlier(s.res.RetryAt, out.RetryAt)
		if err != nil {
			errs = append(errs, fmt.Errorf("remove %s: %w", step.Name(), err))
		}
		if s.halted = out.Halt; s.halted {
			break
		}
	}
	s.res.Err = errors.Join(errs...)
	s.res.Done = !s.halted && s.res.Err == nil
}

// walk makes one step in one direction, and notes the result.
func (e *Engine) walk(
	ctx context.Context, s *podSync, name string, do func(context.Context, *steps.Sync) (steps.Outcome, error),
) (steps.Outcome, error) {
	began := time.Now()
	e.deps.Timeline.Begin(s.work.UID, name, began)
	inside, end := e.deps.Tracing.Step(ctx, name)
	out, err := do(inside, s.Sync)
	end(err)
	e.note(s, name, began, out, err)
	return out, err
}

// note writes the result of a step or a stage to the pod's timeline and the metrics.
func (e *Engine) note(s *podSync, name string, began time.Time, out steps.Outcome, err error) {
	entry := timeline.Entry{Step: name, Begin: began, End: time.Now(), Outcome: timeline.Done, Message: out.Note}
	switch {
	case err != nil:
		entry.Outcome, entry.Message = timeline.Failed, err.Error()
	case out.Waiting != "":
		entry.Outcome, entry.Message = timeline.Wait, out.Waiting
	}
	e.deps.Timeline.Add(s.work.UID, entry)
	e.deps.Metrics.Step(name, string(entry.Outcome), entry.End.Sub(began))
}

// reject ends a pod that must not run.
func (e *Engine) reject(s *podSync, r *steps.Rejection) {
	if s.Record.Rejected == nil {
		s.Record.Rejected = &checkpoint.Rejected{Reason: r.Reason, Message: r.Message, Detail: r.Detail}
	}
	e.deps.Events.Pod(s.Pod, "", v1.EventTypeWarning, r.Reason, r.Message)
	e.deps.Metrics.Rejected(r.Reason)
	s.res = worker.Result{Finished: true}
}

// plan decides what the pod needs next.
func (e *Engine) plan(_ context.Context, s *podSync) (steps.Outcome, error) {
	if s.work.Phase != worker.Running {
		s.Actions = plan.DecideStop(e.planInput(s))
		return steps.Outcome{}, nil
	}
	s.Actions = plan.Decide(e.planInput(s))
	s.wantedSandbox = s.Actions.CreateSandbox
	return steps.Outcome{RetryAt: s.Actions.TidyAt}, nil
}

// operation returns a sync's name by its phase, as in the metric
// kubelet_pod_worker_duration_seconds.
func operation(phase worker.Phase) string {
	return [...]string{
		worker.Running:     "sync",
		worker.Terminating: "terminating",
		worker.Terminated:  "terminated",
	}[phase]
}

// spanOf returns a sync's name by its phase, as in the kubelet's spans, and the reason for the
// sync.
func spanOf(phase worker.Phase) (name, updateType string) {
	switch phase {
	case worker.Running:
		return "syncPod", "sync"
	case worker.Terminating:
		return "syncTerminatingPod", "kill"
	default:
		return "syncTerminatedPod", "kill"
	}
}
