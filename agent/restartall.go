package agent

import (
	"context"
	"time"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
)

// restartAllStep names the restart of all containers in timelines.
const restartAllStep = "restart all containers"

// restartAll carries out what plan decided about a restart of all containers, and reports whether that is all that there is to do in this pass.
func (a *Agent) restartAll(ctx context.Context, p *steps.Pass) (worker.Result, bool) {
	var res worker.Result
	if !p.Actions.RestartAll {
		startedAgain(p)
		return res, false
	}
	if r := p.Record.RestartAll; r == nil || !r.Cleaning {
		p.Record.RestartAll = a.newRestartAll(p)
		p.Record.InitializedIn = ""
		if res.Err = p.Save(); res.Err != nil { // without the note a restart of the agent would take ended containers for done
			return res, true
		}
	}
	began := time.Now()
	a.timeline.Begin(p.Pod.UID, restartAllStep, began)
	out, err := steps.Containers{Starter: a.starter, Stopper: a.stopper}.RestartAll(ctx, p)
	a.note(p.Pod.UID, restartAllStep, began, out, err)
	res.Err = err
	return res, true
}

// newRestartAll notes that all containers are to be removed, and how long they have to wait before they start again: the crash back-off of the container
// that asked for it, of which this counts as a restart.
func (a *Agent) newRestartAll(p *steps.Pass) *checkpoint.RestartAll {
	r := &checkpoint.RestartAll{Cleaning: true, Removed: map[string]bool{}}
	for _, c := range p.Observed.Containers {
		if _, kind := plan.FindContainer(p.Pod, c.Name()); kind == plan.Init || kind == plan.App {
			r.Removed[c.Name()] = true
		}
	}
	if by := p.Actions.RestartedBy; by != nil {
		limits := a.limits(p.Pod)
		before, finished := p.Record.Backoff[by.Name()], time.Unix(0, by.FinishedAt)
		if until := before.Until(finished, limits); !until.IsZero() {
			r.Hold = &plan.Hold{Until: until, Delay: before.Delay, By: by.Name()}
		}
		p.Record.RaiseBackoff(by.Name(), finished, limits)
	}
	return r
}

// startedAgain takes notice of the containers that were made again, and forgets the restart once all were.
func startedAgain(p *steps.Pass) {
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
