package pod

import (
	"context"
	"time"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
)

// stepRestartAll names the restart of all containers in timelines.
const stepRestartAll = "restart all containers"

// restartAll carries out what plan decided about a restart of all containers (KEP-5532). As long as
// this restart goes on, the sync does nothing else.
func (e *Engine) restartAll(ctx context.Context, s *podSync) (steps.Outcome, error) {
	if !s.Actions.RestartAll {
		startedAgain(s.Sync)
		return steps.Outcome{}, nil
	}
	if r := s.Record.RestartAll; r == nil || !r.Cleaning {
		s.Record.RestartAll = e.newRestartAll(s.Sync)
		s.Record.InitializedIn = ""
		// without the note a restart of the agent would take ended containers for done
		if err := s.Save(); err != nil {
			return steps.Outcome{Halt: true}, err
		}
	}
	began := time.Now()
	e.deps.Timeline.Begin(s.Pod.UID, stepRestartAll, began)
	out, err := e.containers().RestartAll(ctx, s.Sync)
	e.note(s, stepRestartAll, began, out, err)
	return steps.Outcome{Halt: true}, err
}

// newRestartAll notes that all containers are to be removed, and how long they wait before they
// start again. The wait is the crash back-off of the container that asked for the restart, and this
// counts as a restart of that container.
func (e *Engine) newRestartAll(p *steps.Sync) *checkpoint.RestartAll {
	r := &checkpoint.RestartAll{Cleaning: true, Removed: map[string]bool{}}
	for _, c := range p.Observed.Containers {
		if _, kind := plan.FindContainer(p.Pod, c.Name()); kind == plan.Init || kind == plan.App {
			r.Removed[c.Name()] = true
		}
	}
	if by := p.Actions.RestartedBy; by != nil {
		limits := e.limits(p.Pod)
		spec, _ := plan.FindContainer(p.Pod, by.Name())
		before := p.Record.Backoff[by.Name()].For(plan.BackoffKey(spec))
		if until := before.Until(p.Record.EndOf(by), limits); !until.IsZero() {
			r.Hold = &plan.Hold{Until: until, Delay: before.Delay, By: by.Name()}
		}
		p.Record.RaiseBackoff(spec, by, limits)
	}
	return r
}

// startedAgain takes notice of the containers that were made again. It forgets the restart once all
// containers were made again.
func startedAgain(p *steps.Sync) {
	r := p.Record.RestartAll
	if r == nil {
		return
	}
	r.Cleaning = false
	for _, c := range p.Observed.Containers {
		delete(r.Removed, c.Name())
	}
	if len(r.Removed) == 0 {
		p.Record.RestartAll = nil
	}
}
