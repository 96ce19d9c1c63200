// Package observe reads what the runtime has of each pod: it is the pod cache and the PLEG, in the
// kubelet's words.
//
// Purpose: the pod cache is [Observer]. [Observer.Pod] lists one pod's sandboxes and containers for
// a sync. [Observer.Relist] lists all of them and says which pods changed. [Observer.Owner] finds
// the pod of a container id. Details of a container are remembered as long as its state stays the
// same: nothing else about the container can change, except the reason of a kill, soon after it.
// The pod lifecycle event generator is [PLEG]: it notices exits and other events, and wakes the
// pods' workers.
//
// Truth owned: none; the runtime owns it. A sync always lists anew. So what is remembered saves
// calls and never misleads.
//
// Concurrency: an [Observer] and a [PLEG] are safe for concurrent use.
package observe

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
)

// Runtime is the part of cri.Runtime that observing needs.
type Runtime interface {
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
}

// Observer observes one runtime.
type Observer struct {
	rt Runtime

	mu         sync.Mutex
	containers map[string]*plan.Container
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	owner      map[string]types.UID
	seen       map[types.UID]uint64
	exits      map[string]early
}

// New returns an observer of rt.
func New(rt Runtime) *Observer {
	return &Observer{
		rt:         rt,
		containers: map[string]*plan.Container{},
		sandboxes:  map[string]*runtimeapi.PodSandboxStatus{},
		owner:      map[string]types.UID{},
		seen:       map[types.UID]uint64{},
		exits:      map[string]early{},
	}
}

// Pod returns what the runtime has of one pod. It leaves out what vanishes between the listing and
// the question for details.
func (o *Observer) Pod(ctx context.Context, uid types.UID) (plan.Observed, error) {
	selector := map[string]string{cri.LabelPodUID: string(uid)}
	sandboxes, err := o.rt.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return plan.Observed{}, fmt.Errorf("listing the sandboxes of pod %s: %w", uid, err)
	}
	containers, err := o.rt.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return plan.Observed{}, fmt.Errorf("listing the containers of pod %s: %w", uid, err)
	}
	var obs plan.Observed
	for _, s := range sandboxes {
		st, err := o.sandbox(ctx, s)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return plan.Observed{}, fmt.Errorf("asking for sandbox %s of pod %s: %w", s.Id, uid, err)
		}
		obs.Sandboxes = append(obs.Sandboxes, st)
	}
	for _, c := range containers {
		st, err := o.container(ctx, c)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return plan.Observed{}, fmt.Errorf("asking for container %s of pod %s: %w", c.Id, uid, err)
		}
		obs.Containers = append(obs.Containers, st)
	}
	obs.Sort()
	o.mu.Lock()
	o.seen[uid] = signature(sandboxes, containers)
	o.mu.Unlock()
	return obs, nil
}

// sandbox returns a sandbox's details. It returns the remembered ones if the state is the same and
// the sandbox's address is known.
func (o *Observer) sandbox(ctx context.Context, s *runtimeapi.PodSandbox) (*runtimeapi.PodSandboxStatus, error) {
	o.mu.Lock()
	known := o.sandboxes[s.Id]
	o.owner[s.Id] = types.UID(s.Labels[cri.LabelPodUID])
	o.mu.Unlock()
	if known != nil && known.State == s.State && settled(known) {
		return known, nil
	}
	st, err := o.rt.PodSandboxStatus(ctx, s.Id)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	o.sandboxes[s.Id] = st
	o.mu.Unlock()
	return st, nil
}

// settled reports whether nothing about a sandbox can change any more while its state stays: it has
// its address, or will never get one.
func settled(s *runtimeapi.PodSandboxStatus) bool {
	return s.State != runtimeapi.PodSandboxState_SANDBOX_READY || s.GetNetwork().GetIp() != "" ||
		s.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

const (
	// killed is the exit code of a process that SIGKILL ended.
	killed = 128 + 9
	// oomKilled is the reason that runtimes give if the kernel sent SIGKILL because memory ran out.
	oomKilled = "OOMKilled"
	// oomLate is how much later than the end a runtime may learn that memory ran out. containerd
	// gets the two by separate events.
	oomLate = 5 * time.Second
)

// final reports whether nothing about a container can change any more while its state stays.
func final(c *plan.Container, now time.Time) bool {
	switch {
	case c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN:
		return false
	case c.Exited() && c.ExitCode == killed && c.Reason != oomKilled:
		// an end in the future means that the clock was put back
		return now.Sub(time.Unix(0, c.FinishedAt)).Abs() > oomLate
	}
	return true
}

// container returns a container's details. It returns the remembered ones if the state is the same.
func (o *Observer) container(ctx context.Context, c *runtimeapi.Container) (*plan.Container, error) {
	o.mu.Lock()
	known := o.containers[c.Id]
	o.owner[c.Id] = types.UID(c.Labels[cri.LabelPodUID])
	o.mu.Unlock()
	if known != nil && known.State == c.State && final(known, time.Now()) {
		return known, nil
	}
	st, err := o.rt.ContainerStatus(ctx, c.Id)
	if err != nil {
		return nil, err
	}
	out := &plan.Container{ContainerStatus: st, SandboxID: c.PodSandboxId, Hash: st.Annotations[cri.AnnotationHash]}
	o.mu.Lock()
	o.containers[c.Id] = out
	o.mu.Unlock()
	return out, nil
}

// Counts returns how many sandboxes are ready, and how many containers there are by state (created,
// running, exited, unknown), as they were last observed.
func (o *Observer) Counts() (ready int, containers map[string]int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	containers = map[string]int{}
	for _, c := range o.containers {
		containers[strings.ToLower(strings.TrimPrefix(c.State.String(), "CONTAINER_"))]++
	}
	return ready, containers
}

// Owner returns the pod of a container or sandbox id that has been observed.
func (o *Observer) Owner(id string) (types.UID, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid, ok := o.owner[id]
	return uid, ok
}

// Forget drops what is remembered of a pod that is gone.
func (o *Observer) Forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.seen, uid)
	for id, owner := range o.owner {
		if owner == uid {
			delete(o.owner, id)
			delete(o.containers, id)
			delete(o.sandboxes, id)
			delete(o.exits, id)
		}
	}
}
