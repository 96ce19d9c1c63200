// Package steps has the rungs of a pod's ladder, one file each.
//
// Purpose: each [Step] brings up and keeps up one thing that a pod needs (Ensure), and gives it back (Remove). The list of them, in order, is in
// agent/pipeline.go: bring-up reads down, take-down reads up.
//
// Truth owned: none of its own. A step works from what the pass observed and what plan decided; a pod's few remembered facts are in its
// checkpoint record, which belongs to the pod's worker.
//
// Concurrency: steps are shared by all workers and hold no state of a pod. A [Pass] belongs to one goroutine.
package steps

import (
	"context"
	"log/slog"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/status"
)

// Step is one rung. Both directions are idempotent, work from what is observed, and never block on a grace period, a pull or a hook.
type Step interface {
	// Name is the step's name in timelines, metrics and traces.
	Name() string
	// Ensure brings the step's part up. An error ends the pass and is tried again; a [Rejection] ends the pod.
	Ensure(ctx context.Context, p *Pass) (Outcome, error)
	// Remove gives the step's part back; it works where Ensure never ran. With p.Forget records go, too.
	Remove(ctx context.Context, p *Pass) (Outcome, error)
}

// Outcome is how a step that did not fail ended. The zero value is "done".
type Outcome struct {
	// Waiting says what is waited for; empty where nothing is.
	Waiting string
	// Halt holds back the steps behind it.
	Halt bool
	// RetryAt asks for a pass at that time; zero where something will wake the worker.
	RetryAt time.Time
	// Note is for the timeline where there is something worth saying.
	Note string
}

// Earlier returns the earlier of two times, of which the zero time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Rejection is the error that ends a pod for good: phase Failed with this reason.
type Rejection struct {
	Reason, Message string
	// Detail is what is known beyond the message that the pod's status gets; it may be empty.
	Detail string
}

// Error returns all that is known.
func (r *Rejection) Error() string {
	text := r.Reason + ": " + r.Message
	if r.Detail != "" {
		text += ": " + r.Detail
	}
	return text
}

// Pass is one pass over one pod: what it starts from, and what the steps find on their way for those behind them.
type Pass struct {
	Pod      *v1.Pod
	Observed plan.Observed
	Actions  plan.Actions
	Record   *checkpoint.Record
	Tasks    *tasks.Group
	// Ended says how tasks ended since the last pass, by key; [Collect] sets it.
	Ended map[string]error
	Log   *slog.Logger
	// Stop is why the pod ends; nil while it runs. Forget says that its records must go.
	Stop   *worker.Stop
	Forget bool

	// Limits is the pod by which its cgroup is limited while a resize is under way; nil for Pod.
	Limits *v1.Pod
	// CgroupParent is what the runtime is given as the pod's cgroup.
	CgroupParent string
	Volumes      volumes.Mounts
	// Unmounted is since when the pod has waited for volumes, or when that was told of last; zero where none is missing. It outlives the pass.
	Unmounted *time.Time
	// VolumeGroups are the groups that the pod's processes get for its volumes' sake.
	VolumeGroups []int64
	// Sandbox and SandboxConfig are the sandbox in use and the config it has or had.
	Sandbox       *runtimeapi.PodSandboxStatus
	SandboxConfig *runtimeapi.PodSandboxConfig
	PodIPs        []string
	// UserNamespace are the pod's ids, with hostUsers: false.
	UserNamespace *runtimeapi.UserNamespace
	Images        map[string]images.Result
	// Waiting says of containers that do not run why.
	Waiting map[string]status.Reason
	// Problem is the step that failed and its error, for the pod's conditions.
	Problem status.Reason
	// Started are the ids of the containers that this pass started, by name.
	Started map[string]string
	// Save writes the record now.
	Save func() error
	// Early says that Observed shows exits that the runtime does not list yet: good for telling, not for deciding.
	Early bool
	// busy are the keys of the tasks that were active when the pass began, or that it started.
	busy map[string]bool
	// Changed is set by a step that changed something in the runtime, so that the status must be derived from a new look.
	Changed bool
}

// Busy returns what is under way on a container, empty where nothing is.
func (p *Pass) Busy(containerID string) plan.Operation {
	active := func(key string) bool { return p.busy[key] || p.Tasks.Has(key) }
	switch {
	case active(stopTask + containerID), active(preStopTask + containerID):
		return plan.Stopping
	case active(postStartTask + containerID):
		return plan.PostStart
	}
	return ""
}

// start starts a task, unless one of that key is active or was in this pass.
func (p *Pass) start(key string, task func(context.Context) error) {
	if !p.busy[key] {
		p.busy[key] = true
		p.Tasks.Start(key, task)
	}
}

// wait notes why a container does not run.
func (p *Pass) wait(container, reason, message string) {
	p.Waiting[container] = status.Reason{Reason: reason, Message: message}
}

// starting returns the container starts of one kind that this pass has to make.
func (p *Pass) starting(kinds ...plan.Kind) []plan.Start {
	var out []plan.Start
	for _, s := range p.Actions.Start {
		for _, k := range kinds {
			if s.Kind == k {
				out = append(out, s)
			}
		}
	}
	return out
}
