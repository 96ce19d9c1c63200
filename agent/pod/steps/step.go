// Package steps has the steps of a pod's life, one file each.
//
// Purpose: each [Step] brings up and keeps up one thing that a pod needs (Ensure), and gives it
// back (Remove). The list of the steps, in order, is in agent/pod/pipeline.go: bring-up reads down,
// take-down reads up.
//
// Truth owned: none of its own. A step works from what the sync observed and what plan decided. A
// pod's few remembered facts are in its checkpoint record, which belongs to the pod's worker.
//
// Concurrency: steps are shared by all workers and hold no state of a pod. A [Sync] belongs to one
// goroutine.
package steps

import (
	"context"
	"log/slog"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/internal/silent"
	"github.com/berthd/berth/status"
)

// Step is one step of a pod's life. Both directions are idempotent and work from what is observed.
// They never block on a grace period, a pull or a hook.
type Step interface {
	// Name is the step's name in timelines, metrics and traces.
	Name() string
	// Ensure brings the step's part up. After an error the sync ends, and another one tries again;
	// a [Rejection] ends the pod.
	Ensure(ctx context.Context, p *Sync) (Outcome, error)
	// Remove gives the step's part back. It works even if Ensure never ran. With p.Terminated it
	// removes records, too.
	Remove(ctx context.Context, p *Sync) (Outcome, error)
}

// Outcome is how a step that did not fail ended. The zero value is "done".
type Outcome struct {
	// Waiting says what the step waits for; empty for nothing.
	Waiting string
	// Halt holds back the steps behind it.
	Halt bool
	// RetryAt asks for a sync at that time. It is zero if something will wake the worker.
	RetryAt time.Time
	// Note is for the timeline, if there is something worth saying.
	Note string
	// Finished says that nothing of the pod will ever run again. It holds back the steps behind it,
	// too. Why is why the pod has to end; it is zero if the reason is that all of the pod has
	// ended.
	Finished bool
	Why      worker.Stop
}

// Earlier returns the earlier of two times. The zero time means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Rejection is the error that ends a pod for good: phase Failed with this reason.
type Rejection struct {
	Reason, Message string
	// Detail is what is known beyond the message in the pod's status. It may be empty.
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

// Sync is one sync of one pod, in groups by who writes what. A step reads all of it and writes what
// its group says.
type Sync struct {
	Given
	Seen
	// Actions is what plan decided; the stage "plan" writes it once, and the sandbox step adds the
	// new sandbox's id.
	Actions plan.Actions
	Made
	Found
}

// Given is what a sync starts from. The engine writes it before the first stage. Afterwards only
// Pod and the record change: the stages that admit and resize the pod replace Pod by the pod with
// what it was allocated.
type Given struct {
	Pod    *v1.Pod
	Record *checkpoint.Record
	Tasks  *tasks.Group
	// Looks bounds the looks at file systems of all pods; nil does not.
	Looks *silent.Looks
	Log   *slog.Logger
	// Stop is why the pod ends, nil while it runs. Terminated says that it has ended, and its
	// records must be removed.
	Stop       *worker.Stop
	Terminated bool
	// Unmounted is since when the pod has waited for volumes, or when that was last reported. It is
	// zero if no volume is missing. It outlives the sync.
	Unmounted *time.Time
	// Leftovers are what the runtime does not remove. They outlive the sync.
	Leftovers Leftovers
	// Save writes the record now.
	Save func() error
}

// Seen is what the sync found at its start. The stages "tasks", "observe" and "early exits" write
// it.
type Seen struct {
	Observed plan.Observed
	// Early says that Observed shows exits that the runtime does not list yet. Such exits are good
	// enough for a status, not for decisions.
	Early bool
	// Ended says how tasks ended since the last sync, by key.
	Ended map[string]error
	// busy has the keys of the tasks that were active when the sync began, or that it started.
	busy map[string]bool
}

// Made is what each step brought up, for the steps behind it.
type Made struct {
	// Limits is the pod whose limits its cgroup has while a resize is under way, nil for Pod. The
	// resize stage writes it.
	Limits *v1.Pod
	// CgroupParent is the pod's cgroup as the runtime names it. The cgroup step writes it.
	CgroupParent string
	// Volumes are the pod's mounted volumes. VolumeGroups are the groups that the pod's processes
	// get for them. The volumes step writes both.
	Volumes      volumes.Mounts
	VolumeGroups []int64
	// Sandbox is the sandbox in use, SandboxConfig the config that it has or had, and PodIPs its
	// addresses. UserNamespace has the pod's ids with hostUsers: false. The sandbox step writes
	// them.
	Sandbox       *runtimeapi.PodSandboxStatus
	SandboxConfig *runtimeapi.PodSandboxConfig
	PodIPs        []string
	UserNamespace *runtimeapi.UserNamespace
	// Images are the images by container. The images step writes them.
	Images map[string]images.Result
	// Started has the ids of the containers that this sync started, by name. The init and
	// containers steps write it.
	Started map[string]string
	// stuck has the newest attempts that the runtime does not remove, by container. The init step
	// writes it.
	stuck map[string]stuck
}

// Found is what the stages and steps leave for the pod's status. Any of them writes it.
type Found struct {
	// Waiting says, by container, why containers do not run.
	Waiting map[string]status.Reason
	// Problem is the step that failed and its error, for the pod's conditions.
	Problem status.Reason
	// Changed says that something changed in the runtime. The status must then be derived from a
	// new observation.
	Changed bool
}

// Busy returns the operation under way on a container, empty for none.
func (p *Sync) Busy(containerID string) plan.Operation {
	active := func(key string) bool { return p.busy[key] || p.Tasks.Has(key) }
	switch {
	case active(stopTask + containerID), active(preStopTask + containerID):
		return plan.Stopping
	case active(postStartTask + containerID):
		return plan.PostStart
	}
	return ""
}

// start starts a task, unless a task of that key is active or was active in this sync.
func (p *Sync) start(key string, task func(context.Context) error) {
	if !p.busy[key] {
		p.busy[key] = true
		p.Tasks.Start(key, task)
	}
}

// briefTask begins the key of a look at a file system; moment is how long a sync waits for it.
const (
	briefTask = "look/"
	moment    = time.Second
)

// Briefly does what takes a moment unless the file system of path does not answer, as one of NFS
// whose server is silent. Then the error is [volumes.ErrUnderWay], the sync goes on without, and is
// made again when do ends. The caller reads what do wrote only without that error. Do calls
// [tasks.Hold] before it changes anything in the pod's directory.
func (p *Sync) Briefly(ctx context.Context, key, path string, do func(context.Context) error) error {
	ended, err := p.Tasks.Brief(ctx, briefTask+key, moment, func(ctx context.Context) error {
		leave, err := p.Looks.Enter(ctx, path)
		if err != nil {
			return err
		}
		defer leave()
		return do(ctx)
	})
	if !ended {
		return p.unanswered(path)
	}
	return err
}

// unanswered is the error of a look that has not ended. It is a [volumes.ErrUnderWay].
type unanswered struct{ why string }

// Error returns all that is known.
func (u *unanswered) Error() string { return volumes.ErrUnderWay.Error() + ": " + u.why }

// Is reports whether target is what the error is.
func (u *unanswered) Is(target error) bool { return target == volumes.ErrUnderWay }

// unanswered returns the error of looks at these paths.
func (p *Sync) unanswered(paths ...string) error {
	late := &unanswered{"a file system does not answer"}
	for _, path := range paths {
		if why := p.Looks.Full(path); why != "" {
			late.why += ": " + why
			break
		}
	}
	return late
}

// leaveLook leaves a look behind that has not ended for longer than a server may take that does not
// lose what was written. The outcome says what the pod waits for until then.
func (p *Sync) leaveLook(key string) Outcome {
	out := Outcome{Waiting: "the end of the " + key + ": a file system does not answer", Halt: true}
	due := p.Tasks.Began(key).Add(volumes.SilentFor)
	if time.Now().Before(due) {
		out.RetryAt = due
		return out
	}
	if !p.Tasks.LeaveBehind(key) {
		return out
	}
	p.Log.Warn("a file system does not answer: the pod goes without the end of a look at it", "look", key)
	return Outcome{}
}

// wait keeps why a container does not run.
func (p *Sync) wait(container, reason, message string) {
	p.Waiting[container] = status.Reason{Reason: reason, Message: message}
}

// sourcesTask begins the key of a look at the sources of a container's mounts.
const sourcesTask = "look at the sources of the mounts of "

// lookAt looks at the sources of a container's mounts before the runtime does, which may wait for a
// file system that does not answer, and with it the sync. Then the error is [volumes.ErrUnderWay].
// Any other error is the runtime's to find. Unlike the look of [Sync.Briefly] this one mounts
// nothing, so volumes can be unmounted meanwhile, which ends it.
func (p *Sync) lookAt(ctx context.Context, container string, mounts []*runtimeapi.Mount) error {
	var paths []string
	for _, m := range mounts {
		if m.GetHostPath() != "" {
			paths = append(paths, m.GetHostPath())
		}
	}
	ended, err := p.Tasks.Brief(ctx, sourcesTask+container, moment, func(ctx context.Context) error {
		for _, path := range paths {
			leave, err := p.Looks.Enter(ctx, path)
			if err != nil {
				return err
			}
			_, _ = os.Stat(path)
			leave()
		}
		return nil
	})
	if !ended {
		return p.unanswered(paths...)
	}
	return err
}

// starting returns the container starts of one kind that this sync has to make.
func (p *Sync) starting(kinds ...plan.Kind) []plan.Start {
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
