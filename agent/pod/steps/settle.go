package steps

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/plan"
)

// Collect takes the results of the pod's tasks since the last sync, and records at once how hooks
// ended: a hook that has run must not run again because the agent is killed. A container whose
// postStart hook failed is being stopped from now on. A task that is active now counts as busy for
// the whole sync; the next sync sees how it ended.
func Collect(p *Sync) {
	p.busy, p.Ended = p.Tasks.Look()
	noted := false
	for key, err := range p.Ended {
		if id, ok := strings.CutPrefix(key, preStopTask); ok {
			if stop, begun := p.Record.Stops[id]; begun && !stop.Hooked {
				stop.Hooked = true
				p.Record.Stops[id] = stop
				noted = true
			}
		}
		if id, ok := strings.CutPrefix(key, postStartTask); ok && p.Record.PostStart[id] {
			_, begun := p.Record.Stops[id]
			switch {
			case err == nil:
				delete(p.Record.PostStart, id)
				noted = true
			case !begun && !errors.Is(err, context.Canceled):
				p.begin(id, time.Duration(min(podGrace(p.Pod), maxGraceSeconds))*time.Second)
				noted = true
			}
		}
	}
	if noted {
		if err := p.Save(); err != nil {
			p.Log.Warn("end of a hook not noted: it will run again should the agent end before that is done",
				"err", err)
		}
	}
}

// Settle brings the pod's record in line with what was observed. It drops what was recorded about
// containers that do not run any more, and ends the hooks that outlived their containers.
func Settle(ctx context.Context, p *Sync) {
	known, running := map[string]bool{}, map[string]bool{}
	for _, c := range p.Observed.Containers {
		known[c.Id], running[c.Id] = true, c.Running()
	}
	maps.DeleteFunc(p.Record.PostStart, func(id string, _ bool) bool { return !running[id] })
	maps.DeleteFunc(p.Record.Stops, func(id string, _ plan.ContainerStop) bool { return !running[id] })
	maps.DeleteFunc(p.Record.KilledToRestart, func(id string, _ bool) bool { return !known[id] })
	maps.DeleteFunc(p.Record.Asked, func(id string, _ plan.AskedRestart) bool {
		return !slices.ContainsFunc(p.Observed.Containers, func(c *plan.Container) bool {
			return c.Id == id && p.Observed.Latest(c.Name()) == c // else it was made again
		})
	})
	maps.DeleteFunc(p.Record.StartFailed, func(id string, _ bool) bool { return !known[id] })
	maps.DeleteFunc(p.Leftovers, func(id string, _ leftover) bool { return !known[id] })
	for _, key := range p.Tasks.Active() {
		for _, prefix := range []string{preStopTask, hookTask, postStartTask} {
			if id, hook := strings.CutPrefix(key, prefix); hook && !running[id] {
				p.Tasks.Cancel(ctx, key)
			}
		}
	}
}

// Unstarted returns what was observed, with each container whose start was cut off shown as created
// and never started. Such a container ended without having run, and no reason was reported. It is
// made again under its number and does not count as a restart.
func Unstarted(o plan.Observed, rec *checkpoint.Record) plan.Observed {
	cutOff := func(c *plan.Container) bool { return c.Exited() && c.StartedAt == 0 && !rec.StartFailed[c.Id] }
	if !slices.ContainsFunc(o.Containers, cutOff) {
		return o
	}
	containers := slices.Clone(o.Containers)
	for i, c := range containers {
		if cutOff(c) {
			created := proto.Clone(
				c.ContainerStatus).(*runtimeapi.ContainerStatus) //nolint:forcetypeassert // A clone is what was cloned.
			created.State = runtimeapi.ContainerState_CONTAINER_CREATED
			created.FinishedAt, created.ExitCode, created.Reason, created.Message = 0, 0, "", ""
			containers[i] = &plan.Container{ContainerStatus: created, SandboxID: c.SandboxID, Hash: c.Hash}
		}
	}
	o.Containers = containers
	return o
}
