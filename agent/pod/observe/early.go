package observe

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
)

// earlyLimit is how long an exit counts that the runtime has reported and does not list. If the
// runtime still does not list the exit then, its report was wrong.
const earlyLimit = 5 * time.Second

// early is an exit that the runtime has reported before its lists show it.
type early struct {
	exit     cri.Exit
	reported time.Time
}

// Exited records how a container ended that the runtime may still list as running. Nil removes the
// record: from then on the lists are right. Exited reports whether this is the first report of the
// exit. Containers that were never observed are not recorded.
func (o *Observer) Exited(id string, exit *cri.Exit) (first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, noted := o.exits[id]
	if exit == nil {
		delete(o.exits, id)
	} else if o.containers[id] != nil {
		o.exits[id] = early{exit: *exit, reported: time.Now()}
	}
	return !noted
}

// Early returns what was observed, with the exits that the runtime has reported and does not list
// yet. It returns false if there are no such exits. The result is for the pod's status, so that
// people see the exits at once. Decisions use what the runtime lists: only the lists show that all
// of the container has ended.
func (o *Observer) Early(obs plan.Observed) (plan.Observed, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := false
	out := plan.Observed{Sandboxes: obs.Sandboxes, Containers: make([]*plan.Container, len(obs.Containers))}
	for i, c := range obs.Containers {
		out.Containers[i] = c
		e, ok := o.exits[c.Id]
		if !ok || !c.Running() || time.Since(e.reported) > earlyLimit {
			continue
		}
		found = true
		out.Containers[i] = &plan.Container{
			ContainerStatus: ended(c.ContainerStatus, e.exit),
			SandboxID:       c.SandboxID,
			Hash:            c.Hash,
		}
	}
	return out, found
}

// ended returns a status as the CRI has it after an exit. It cannot know that the kernel killed the
// container because memory ran out.
func ended(running *runtimeapi.ContainerStatus, exit cri.Exit) *runtimeapi.ContainerStatus {
	reason := "Completed"
	if exit.Code != 0 {
		reason = "Error"
	}
	return &runtimeapi.ContainerStatus{
		Id:          running.Id,
		Metadata:    running.Metadata,
		State:       runtimeapi.ContainerState_CONTAINER_EXITED,
		CreatedAt:   running.CreatedAt,
		StartedAt:   running.StartedAt,
		FinishedAt:  exit.At.UnixNano(),
		ExitCode:    exit.Code,
		Reason:      reason,
		Image:       running.Image,
		ImageRef:    running.ImageRef,
		ImageId:     running.ImageId,
		Labels:      running.Labels,
		Annotations: running.Annotations,
		Mounts:      running.Mounts,
		LogPath:     running.LogPath,
		Resources:   running.Resources,
		User:        running.User,
		StopSignal:  running.StopSignal,
	}
}
