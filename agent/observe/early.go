package observe

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/cri"
)

// earlyLimit is how long an exit counts that the runtime has told of and does not list; a runtime that is that late has told something wrong.
const earlyLimit = 5 * time.Second

// early is an exit that the runtime has told of before its lists show it.
type early struct {
	exit cri.Exit
	told time.Time
}

// Exited notes how a container ended that the runtime may still list as running. Nil takes the note back: the lists tell the truth now. It reports
// whether this is the first that is heard of the exit. Containers that were never observed are not noted.
func (o *Observer) Exited(id string, exit *cri.Exit) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, noted := o.exits[id]
	if exit == nil {
		delete(o.exits, id)
	} else if o.containers[id] != nil {
		o.exits[id] = early{exit: *exit, told: time.Now()}
	}
	return !noted
}

// Early returns what was observed with the exits in it that the runtime has told of and does not list yet; false where there are none. It is good for
// telling people of them at once. What is done about them is decided by what the runtime lists, which alone knows when everything of the container
// has come to its end.
func (o *Observer) Early(obs plan.Observed) (plan.Observed, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := false
	out := plan.Observed{Sandboxes: obs.Sandboxes, Containers: make([]*plan.Container, len(obs.Containers))}
	for i, c := range obs.Containers {
		out.Containers[i] = c
		e, ok := o.exits[c.Id]
		if !ok || !c.Running() || time.Since(e.told) > earlyLimit {
			continue
		}
		found = true
		out.Containers[i] = &plan.Container{ContainerStatus: ended(c.ContainerStatus, e.exit), SandboxID: c.SandboxID, Hash: c.Hash}
	}
	return out, found
}

// ended returns a status as the CRI has it after an exit; only of a kill for want of memory does it not know.
func ended(running *runtimeapi.ContainerStatus, exit cri.Exit) *runtimeapi.ContainerStatus {
	reason := "Completed"
	if exit.Code != 0 {
		reason = "Error"
	}
	return &runtimeapi.ContainerStatus{
		Id: running.Id, Metadata: running.Metadata, State: runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt: running.CreatedAt, StartedAt: running.StartedAt, FinishedAt: exit.At.UnixNano(), ExitCode: exit.Code, Reason: reason,
		Image: running.Image, ImageRef: running.ImageRef, ImageId: running.ImageId, Labels: running.Labels, Annotations: running.Annotations,
		Mounts: running.Mounts, LogPath: running.LogPath, Resources: running.Resources, User: running.User, StopSignal: running.StopSignal,
	}
}
