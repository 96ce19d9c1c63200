package pod

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// pruneWait is the time after which a sync that met the pruning of its pod is made again, if nobody
// wakes the worker before.
const pruneWait = time.Second

// awaitPruning waits until the pod's leftovers are removed.
func (e *Engine) awaitPruning(_ context.Context, s *podSync) (steps.Outcome, error) {
	if !e.deps.Pruning(s.work.UID) {
		return steps.Outcome{}, nil
	}
	return steps.Outcome{Halt: true, RetryAt: time.Now().Add(pruneWait)}, nil
}

// noteWanted takes notice of the wanted version of the pod: the version of its source, and the
// requests for ephemeral containers. The saved record must be complete: if the pod is wanted with
// other resources, the wanted version and its resize must go on record together. Else the next
// agent would take the wanted resources for the allocated ones.
func (e *Engine) noteWanted(_ context.Context, s *podSync) (steps.Outcome, error) {
	before := s.Record.Pod
	if !pods.RuntimeOnly(s.work.Pod) {
		s.Record.Pod = s.work.Pod
	}
	if file := e.deps.Desired.File(s.work.UID); file != "" {
		s.Record.File = file
	}
	beginResize(s.Sync, before)
	e.resizer.warnMissing(s.Sync, before)
	e.addEphemeral(s.Sync, s.work)
	withAllocated(s.Sync)
	return steps.Outcome{}, nil
}

// collectTasks takes notice of how the pod's tasks ended.
func (e *Engine) collectTasks(_ context.Context, s *podSync) (steps.Outcome, error) {
	steps.Collect(s.Sync)
	return steps.Outcome{}, nil
}

// noteEnd records why the pod ends, and since when nobody wants the pod, before any part of the pod
// ends. After a restart of the agent the pod must neither come back nor end for another reason, and
// the time that others have heard must stay the same. The stage that writes the status reports an
// error of this stage.
func (e *Engine) noteEnd(_ context.Context, s *podSync) (steps.Outcome, error) {
	rec, work := s.Record, s.work
	if rec.Stop == work.Stop && rec.UnwantedSince.Equal(work.UnwantedSince) && work.Recorded == work.Unwanted {
		return steps.Outcome{}, nil
	}
	if rec.Pod == nil {
		rec.Pod = s.Pod // known only from the runtime
	}
	rec.Stop, rec.UnwantedSince = work.Stop, work.UnwantedSince
	if err := s.Save(); err == nil && work.Unwanted {
		e.deps.Workers.Recorded(work.UID)
	}
	return steps.Outcome{}, nil
}

// observe reads the pod's sandboxes and containers from the runtime.
func (e *Engine) observe(ctx context.Context, s *podSync) (steps.Outcome, error) {
	began := time.Now()
	observed, err := e.deps.Runtime.Observer.Pod(ctx, s.Pod.UID)
	e.deps.Metrics.PodListed(time.Since(began))
	if err == nil {
		s.Observed = steps.Unstarted(observed, s.Record)
	} else if ctx.Err() == nil && !errdefs.IsUnavailable(err) { // a runtime that is away is reported for the node
		e.deps.Events.Pod(s.Pod, "", v1.EventTypeWarning, "FailedSync", fmt.Sprintf("error determining status: %v", err))
	}
	return steps.Outcome{}, err
}

// settle forgets the notes about containers that do not run any more.
func settle(ctx context.Context, s *podSync) (steps.Outcome, error) {
	steps.Settle(ctx, s.Sync)
	return steps.Outcome{}, nil
}

// awaitClaim halts the sync of a pod that was found in the runtime, until a source has claimed the
// pod or all sources have disowned it.
func awaitClaim(_ context.Context, s *podSync) (steps.Outcome, error) {
	return steps.Outcome{Halt: pods.RuntimeOnly(s.Pod)}, nil
}

// earlyWait is the time that the runtime has to list an exit that it has announced. After that time
// the sync is made again, in case the second event, which wakes the worker, is lost.
const earlyWait = time.Second

// reportEarly reports the containers that have ended and that the runtime still lists as running.
// Their termination messages, and the next stages, have to wait until the runtime has finished with
// these containers.
func (e *Engine) reportEarly(_ context.Context, s *podSync) (steps.Outcome, error) {
	observed, early := e.deps.Runtime.Observer.Early(s.Observed)
	if !early {
		return steps.Outcome{}, nil
	}
	if s.Record.Status != nil {
		s.Observed, s.Early = observed, true
		_ = e.reporter.derive(s) // the next sync reports an error of the write
	}
	return steps.Outcome{Halt: true, RetryAt: time.Now().Add(earlyWait)}, nil
}

// reportFirst reports a new pod, and a container that has ended, at once.
func (e *Engine) reportFirst(_ context.Context, s *podSync) (steps.Outcome, error) {
	begins := s.Record.Status == nil || s.Record.Status.StartTime == nil
	if begins {
		e.warnBackoff(s.Pod)
		e.reporter.measureBegin(s.Pod)
	}
	if begins || died(s.Sync) {
		_ = e.reporter.derive(s) // the stage "status" returns the error
	}
	return steps.Outcome{}, nil
}

// endedBefore finishes a pod that ran to its end in an earlier run of the agent.
func endedBefore(_ context.Context, s *podSync) (steps.Outcome, error) {
	return steps.Outcome{Finished: s.Record.Ended}, nil
}

// keepStopped ends a pod that an operator has stopped. A pod comes here with a changed manifest, or
// when it was made again under its name.
func (e *Engine) keepStopped(_ context.Context, s *podSync) (steps.Outcome, error) {
	if stop := e.deps.Stopped(s.Pod); stop != nil {
		return steps.Outcome{Finished: true, Why: *stop}, nil
	}
	return steps.Outcome{}, nil
}

// awaitAPI halts the sync of an API server's pod of an earlier run, of which nothing runs any more,
// until the API server is read: the pod may have been made elsewhere meanwhile. The config may say
// that such pods do not wait.
func (e *Engine) awaitAPI(_ context.Context, s *podSync) (steps.Outcome, error) {
	if !pods.FromAPI(s.Pod) || e.cfg.RunLastKnown || e.deps.Desired.ReadAPI() {
		return steps.Outcome{}, nil
	}
	if sb := s.Observed.Sandbox(); sb != nil && sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		return steps.Outcome{}, nil
	}
	s.Log.Debug("pod of an earlier run waits for the API server")
	return steps.Outcome{Halt: true}, nil
}

// resumeStarts goes on with interrupted starts.
func (e *Engine) resumeStarts(_ context.Context, s *podSync) (steps.Outcome, error) {
	e.starter.Resume(s.Sync)
	return steps.Outcome{}, nil
}

// resumeStops goes on with interrupted stops.
func (e *Engine) resumeStops(ctx context.Context, s *podSync) (steps.Outcome, error) {
	e.stopper.Resume(ctx, s.Sync)
	return steps.Outcome{}, nil
}

// finished finishes a pod of which nothing will ever run again.
func finished(_ context.Context, s *podSync) (steps.Outcome, error) {
	return steps.Outcome{Finished: s.Actions.Finished}, nil
}

// deadline finishes a pod that has been active for its whole active deadline. It uses the kubelet's
// words.
func (e *Engine) deadline(_ context.Context, s *podSync) (steps.Outcome, error) {
	at, passed := s.state.active.Deadline(s.Pod, s.Record.Status, time.Now())
	if !passed {
		return steps.Outcome{RetryAt: at}, nil
	}
	const reason, message = "DeadlineExceeded", "Pod was active on the node longer than the specified deadline"
	e.deps.Events.Pod(s.Pod, "", v1.EventTypeNormal, reason, message)
	return steps.Outcome{
		Finished: true, Why: worker.Stop{Cause: worker.CauseDeadline, Reason: reason, Message: message},
	}, nil
}

// awaitStart waits for a place among the pods that start, if the pod has something to start.
func (e *Engine) awaitStart(ctx context.Context, s *podSync) (steps.Outcome, error) {
	if !s.Actions.CreateSandbox && len(s.Actions.Start) == 0 {
		return steps.Outcome{}, nil
	}
	e.deps.Timeline.Begin(s.work.UID, timeline.StepSlot, time.Now())
	release, err := e.deps.Starts.Acquire(ctx)
	if err == nil {
		s.release = release
	}
	return steps.Outcome{}, err
}

// lookAgain observes the pod again where the sync changed something. What it changed may be what
// the next step waits for, and the event about it may never come.
func (e *Engine) lookAgain(ctx context.Context, s *podSync) (steps.Outcome, error) {
	if !s.Changed {
		return steps.Outcome{}, nil
	}
	_, _ = e.observe(ctx, s) // what was seen before will do
	if s.work.Phase == worker.Running && s.res.Err == nil && !s.res.Finished {
		s.res.RetryAt = steps.Earlier(s.res.RetryAt, time.Now())
	}
	return steps.Outcome{}, nil
}

// report derives the pod's status and writes the checkpoint. An end that is not on record does not
// count, because the pod would run again after a restart. The end and its status go on record
// together: a sync that is cut short before this stage has not ended the pod. A pod that is to be
// forgotten may go on, because this frees space on a full disk.
func (e *Engine) report(_ context.Context, s *podSync) (steps.Outcome, error) {
	if s.Terminated {
		_ = s.Save() // the record is going to be removed anyway
		return steps.Outcome{}, nil
	}
	if s.res.Done && s.work.Phase == worker.Terminating {
		s.Record.Ended = true
	}
	if err := e.reporter.derive(s); err != nil {
		s.res.Done = s.res.Done && s.work.Unwanted
		return steps.Outcome{}, err
	}
	if s.Record.Ended {
		e.deps.Status.End(s.work.UID)
		e.deps.Node.Allocation.Forget(s.work.UID)
		e.deps.Node.Room.Freed()
	}
	return steps.Outcome{}, nil
}

// logFailure logs a sync that failed, or that succeeds again.
func (e *Engine) logFailure(_ context.Context, s *podSync) (steps.Outcome, error) {
	switch err := s.res.Err; {
	case err == nil && s.state.failures.Recovered():
		s.Log.Info("sync succeeded again", "phase", s.work.Phase)
	case err != nil && s.state.failures.Allow(err, time.Now()):
		s.Log.Error("sync failed; it is tried again", "phase", s.work.Phase, "err", err)
	}
	return steps.Outcome{}, nil
}

// died reports whether a container has ended that is running in the last status.
func died(p *steps.Sync) bool {
	if p.Record.Status == nil {
		return false
	}
	running := map[string]bool{}
	for _, list := range [][]v1.ContainerStatus{
		p.Record.Status.InitContainerStatuses, p.Record.Status.ContainerStatuses,
	} {
		for i := range list {
			if list[i].State.Running != nil {
				running[runtimeID(&list[i])] = true
			}
		}
	}
	return slices.ContainsFunc(p.Observed.Containers, func(c *plan.Container) bool {
		return c.Exited() && running[c.Id]
	})
}
