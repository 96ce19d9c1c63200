package pod

import (
	"context"
	"time"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/status"
)

// pipeline is a pod's life: everything that a sync does, in order. Each part is a list that a sync
// reads downwards; only a pod that ends reads the steps upwards.
type pipeline struct {
	// look finds out what is wanted and what exists. A stage that halts or fails ends the sync,
	// because there is nothing to report.
	look []stage
	// decide finds out what to do. After a stage that halts, fails or finishes the pod, the sync
	// goes on with the report.
	decide []stage
	// steps bring the pod up, or take it down.
	steps []step
	// report reports the result. Every stage runs, whatever happened before.
	report []stage
}

// stage is an entry of the pipeline beside the steps.
type stage struct {
	name string
	// of selects the worker's phases in which a pod goes through the stage; [always] selects each
	// phase.
	of func(worker.Phase) bool
	// timed puts the stage into the pod's timeline, under the stage's name, if the stage fails or
	// waits.
	timed bool
	run   func(ctx context.Context, s *podSync) (steps.Outcome, error)
}

// step is a step with the consequences of its failure.
type step struct {
	steps.Step
	// goesOn makes the sync walk the later steps even if this step failed. Such a step fails for
	// one container and not for the others, or the pod goes on as it is.
	goesOn bool
	// ensured is called with the result of each Ensure of the step; nil if nobody needs the result.
	ensured func(s *podSync, err error)
}

func always(worker.Phase) bool        { return true }
func running(phase worker.Phase) bool { return phase == worker.Running }
func ending(phase worker.Phase) bool  { return phase != worker.Running }

// list is THE list.
func (e *Engine) list() pipeline {
	d := &e.deps
	return pipeline{
		look: []stage{
			// A static pod that comes back must not be made while its leftovers are being removed.
			{name: "pruning", of: always, run: e.awaitPruning},
			// The wishes of the source, of a resize and of ephemeral containers come before all
			// comparisons with them.
			{name: "wanted", of: always, run: e.noteWanted},
			// The ends of tasks are on record before anything else happens: a hook that has run
			// must not run again.
			{name: "tasks", of: always, run: e.collectTasks},
			// The reason for the pod's end is on record before any part of the pod ends: the next
			// agent must not give another reason.
			{name: "end", of: ending, run: e.noteEnd},
			{name: timeline.StepObserve, of: always, timed: true, run: e.observe},
			// Only the observation shows which notes about containers are out of date.
			{name: "settle", of: always, run: settle},
			// An operator's request for a restart is answered before anything is decided.
			{name: "asked restarts", of: always, run: e.noteAsked},
			// A pod found in the runtime waits until a source claims it, or until all sources have
			// said that they do not want it.
			{name: "runtime-only", of: running, run: awaitClaim},
			// For a pod that another agent left, the status of the API server counts. It comes
			// before anything is derived from the record.
			{name: "takeover", of: running, run: e.takeover.run},
			// An exit that was announced and is not listed yet is only reported; nothing is decided
			// about it.
			{name: "early exits", of: running, run: e.reportEarly},
		},
		decide: []stage{
			// A new pod and an ended container are reported at once, because the next stages may
			// take long.
			{name: "first report", of: running, run: e.reportFirst},
			{name: "ended", of: running, run: endedBefore},
			// A pod that an operator has stopped is kept from starting, whatever made it wanted.
			{name: "stopped", of: running, run: e.keepStopped},
			{name: "api server", of: running, run: e.awaitAPI},
			// Interrupted starts are finished before anything may fail, and before plan looks at
			// these containers.
			{name: "resume starts", of: running, run: e.resumeStarts},
			// The allocated resources come first: plan compares the containers with them.
			{name: "allocate", of: running, run: e.resizer.allocate},
			{name: "plan", of: always, run: e.plan},
			// A container whose hook has run gets its signal, whatever else the pod lacks.
			{name: "resume stops", of: running, run: e.resumeStops},
			{name: "finished", of: running, run: finished},
			{name: "deadline", of: running, run: e.deadline},
			// All containers are removed before any is made again. This takes the place of the
			// steps, which would keep some containers.
			{name: "restart all", of: running, run: e.restartAll},
			// This stage is the last, so that a pod that waits for something else takes nobody's
			// place.
			{name: timeline.StepSlot, of: running, run: e.awaitStart},
		},
		steps: []step{
			// The API server's objects come first: a watch takes time, and the pod waits for it as
			// late as possible.
			{Step: steps.Objects{Use: d.Objects.Use, Drop: d.Objects.Drop}},
			// The RuntimeClass has the overhead, which admission counts, and the handler, which
			// runs the sandbox.
			{Step: steps.RuntimeClass{Get: d.Objects.RuntimeClass, Events: d.Events}},
			// Nothing of a pod exists before the pod is admitted and the admission is on record.
			{Step: steps.Admit{Room: d.Node.Room, Allocation: d.Node.Allocation, Events: d.Events}},
			// The directory shows whose the cgroup is: a cgroup without one is somebody else's.
			{Step: steps.Dirs{Volumes: d.Volumes, PodLogsDir: e.cfg.PodLogsDir, LinksDir: e.cfg.LinksDir}},
			{Step: steps.Cgroup{Cgroups: d.Runtime.Cgroups, Events: d.Events}},
			// Volumes come before the sandbox: the sandbox's config has the volumes' groups.
			{Step: steps.Volumes{Manager: d.Volumes, Events: d.Events, HostIPs: d.Node.HostIPs}},
			// Devices are prepared before anything of the pod is in the runtime. On the way down
			// they are given back after all containers have ended.
			{Step: steps.Claims{Manager: d.Node.Allocation.Claims, Events: d.Events}},
			{Step: e.sandboxStep(), ensured: e.sandboxMade},
			// Running containers get new resources before new ones start beside them.
			{Step: e.resizer.step(), goesOn: true},
			// Images come after the sandbox: a pull may need the sandbox's config.
			{Step: steps.Images{Manager: d.Images}},
			{Step: steps.ImageVolumes{Images: d.Images, Supported: d.Runtime.State.ImageVolumes}},
			{Step: steps.Init{Starter: e.starter}, goesOn: true},
			{Step: e.containers(), goesOn: true},
			// Probes come last: they probe running containers, and on the way down they end first.
			{Step: steps.Probes{Manager: d.Probes, HostIPs: d.Node.HostIPs}},
		},
		report: []stage{
			{name: "look again", of: always, run: e.lookAgain},
			{name: "status", of: always, run: e.report},
			{name: "log", of: always, run: e.logFailure},
		},
	}
}

func (e *Engine) sandboxStep() steps.Sandbox {
	d := &e.deps
	return steps.Sandbox{
		Runtime: d.Runtime, Node: d.generate, Resources: d.Runtime.Cgroups.SandboxResources, Handler: d.Objects.Handler,
		Events: &nodeOnce{Recorder: d.Events}, Run: d.Metrics.SandboxRun, RootDir: e.cfg.RootDir, Stopper: e.stopper,
		UserNamespaces: userNamespaces{d.Node.UserIDs, d.Node.Node},
	}
}

func (e *Engine) containers() steps.Containers {
	return steps.Containers{Starter: e.starter, Stopper: e.stopper}
}

// sandboxMade counts pods with a user namespace. After a failed sandbox, it asks for a search for
// leftovers.
func (e *Engine) sandboxMade(s *podSync, err error) {
	if users := s.Pod.Spec.HostUsers; s.wantedSandbox && users != nil && !*users {
		e.deps.Metrics.UserNamespaced(err)
	}
	if err != nil {
		e.deps.Runtime.Interrupted()
	}
}

// planInput gathers the input of a decision.
func (e *Engine) planInput(s *podSync) plan.Input {
	rec := s.Record
	in := plan.Input{
		Pod:             s.Pod,
		Observed:        s.Observed,
		Hash:            containerHash,
		Probes:          map[string]plan.ProbeState{},
		Busy:            map[string]plan.Operation{},
		Backoff:         rec.Backoff,
		RestartFloor:    plan.RestartFloors(rec.Status),
		Ended:           plan.Ended(rec.Status),
		Resize:          restartsFor(s.Sync),
		Asked:           rec.Asked,
		Stops:           rec.Stops,
		InitializedIn:   rec.InitializedIn,
		KilledToRestart: rec.KilledToRestart,
		Limits:          e.limits(s.Pod),
		Dead:            plan.DeadLimits{PerContainer: e.cfg.Dead.MaxPerContainer, MinAge: e.cfg.Dead.MinAge},
		Now:             time.Now(),
	}
	if r := rec.RestartAll; r != nil {
		in.RestartingAll, in.Hold = r.Cleaning, r.Hold
		for name := range r.Removed {
			// a container that was removed to start again has not ended, whatever the last status
			// says
			delete(in.Ended, name)
		}
	}
	for name, r := range e.deps.Probes.Results(s.Pod.UID) {
		in.Probes[name] = plan.ProbeState{ContainerID: r.ContainerID, Started: r.Started, Failed: string(r.Failed)}
	}
	for _, c := range s.Observed.Containers {
		if op := s.Busy(c.Id); op != "" {
			in.Busy[c.Id] = op
		}
	}
	return in
}

// problemOf returns a failed step as a reason for the pod's conditions.
func problemOf(name string, err error) status.Reason {
	return status.Reason{Reason: name, Message: err.Error()}
}
