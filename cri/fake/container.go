package fake

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// container is one container. The node's lock guards what can change. Its state follows from its
// timestamps:
//
//	created ── started ──► running ── finished ──► exited
//	   └────── start failed: finished, never started ──┘
type container struct {
	id, name  string
	seq       int
	sandboxID string
	pod       cri.PodID
	config    *runtimeapi.ContainerConfig
	logPath   string // absolute; empty if there is none
	imageRef  string
	behavior  Behavior

	created, started, finished time.Time
	exitCode                   int32
	reason, message            string
	resources                  *runtimeapi.ContainerResources
	starting, signaled         bool
	ended                      chan struct{} // closed when it exits
}

// CreateContainer makes a container in a ready sandbox, of an image that is present. It fails with
// class AlreadyExists if a container with the same name and attempt, in a pod of the same identity,
// was not removed yet.
func (r *Runtime) CreateContainer(
	ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	n := r.node
	about := Call{
		Method:  "CreateContainer",
		Request: &runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox},
	}
	if config.GetMetadata() != nil {
		about.Container, about.Attempt = config.Metadata.Name, config.Metadata.Attempt
	}
	n.mu.Lock()
	if s := n.sandboxes[sandboxID]; s != nil {
		about.Pod = s.pod()
	}
	n.mu.Unlock()
	return call(ctx, r, about, func(context.Context) (string, error) {
		if config.GetMetadata() == nil || sandbox.GetMetadata() == nil {
			return "", unknown("container config and pod sandbox config must include metadata")
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		if _, err := n.newContainer(sandboxID, config, sandbox); err != nil {
			return "", err // before the script moves on
		}
		n.mu.Unlock()
		b := n.behavior(sandbox, config)
		n.mu.Lock()
		c, err := n.newContainer(sandboxID, config, sandbox)
		if err != nil {
			return "", err
		}
		if b.CreateErr != nil {
			return "", b.CreateErr
		}
		c.behavior = b
		c.id, c.seq = n.newID("container")
		n.containers[c.id] = c
		n.sawCreate(c)
		n.emit(cri.ContainerCreated, c.id, c.pod)
		return c.id, nil
	})
}

// newContainer checks what a container needs and makes it, but does not keep it. The caller holds
// the lock.
func (n *node) newContainer(
	sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig,
) (*container, error) {
	s := n.sandboxes[sandboxID]
	if s == nil {
		return nil, errdefs.ErrNotFound.WithMessage(fmt.Sprintf("failed to find sandbox id %q: not found", sandboxID))
	}
	if !s.ready {
		return nil, unknown(fmt.Sprintf("sandbox container %q is not running", sandboxID))
	}
	m, p := config.GetMetadata(), sandbox.GetMetadata()
	name := strings.Join([]string{m.GetName(), p.GetName(), p.GetNamespace(), p.GetUid(), fmt.Sprint(m.GetAttempt())},
		"_")
	for _, other := range n.containers {
		if other.name == name {
			return nil, errdefs.ErrAlreadyExists.WithMessage(fmt.Sprintf("failed to reserve container name %q; "+
				"check if another CreateContainer request is in progress: name %q is reserved for %q", name, name,
				other.id))
		}
	}
	i := n.imageOf(config.GetImage().GetImage())
	if i == nil || !i.Present {
		return nil, errdefs.ErrNotFound.WithMessage(
			fmt.Sprintf("failed to resolve image %q: not found", config.GetImage().GetImage()))
	}
	c := &container{
		name: name, sandboxID: sandboxID, pod: s.pod(), config: clone(config), imageRef: i.id, created: time.Now(),
		ended:     make(chan struct{}),
		resources: &runtimeapi.ContainerResources{Linux: clone(config.GetLinux().GetResources())},
	}
	if dir := sandbox.GetLogDirectory(); dir != "" && config.GetLogPath() != "" {
		c.logPath = dir + "/" + config.GetLogPath()
	}
	return c, nil
}

// StartContainer starts a container that was created and never started.
func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	n := r.node
	about := Call{Method: "StartContainer", ID: id, Request: &runtimeapi.StartContainerRequest{ContainerId: id}}
	return do(ctx, r, about, func(ctx context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		c := n.containers[id]
		if c == nil {
			return noContainer(id)
		}
		if state := c.state(); state != runtimeapi.ContainerState_CONTAINER_CREATED || c.starting {
			return unknown(fmt.Sprintf("failed to set starting state for container %q: container is in %s state", id,
				state))
		}
		c.starting = true
		n.mu.Unlock()
		err := sleep(ctx, c.behavior.StartDelay)
		n.mu.Lock()
		c.starting = false
		if s := n.sandboxes[c.sandboxID]; err == nil && (s == nil || !s.ready) {
			err = unknown(fmt.Sprintf("sandbox container %q is not running", c.sandboxID))
		}
		if err == nil {
			err = c.behavior.StartErr
		}
		if err == nil {
			err = n.writeLog(c, c.behavior.Output...)
		}
		if err != nil {
			c.finish(startErrorCode, startErrorReason, err.Error())
			return err
		}
		n.run(c)
		return nil
	})
}

// StopContainer stops a container as the contract of [cri.Runtime] requires. A second stop during a
// first one sends no second signal.
func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	n := r.node
	seconds := int64(math.Ceil(grace.Seconds()))
	about := Call{
		Method: "StopContainer", ID: id, Request: &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: seconds},
	}
	return do(ctx, r, about, func(ctx context.Context) error {
		n.mu.Lock()
		c := n.containers[id]
		n.mu.Unlock()
		if c == nil {
			return nil
		}
		return n.stopContainer(ctx, c, time.Duration(seconds)*time.Second)
	})
}

// stopContainer signals a running container, waits for its grace period, kills it, and waits for
// its end.
func (n *node) stopContainer(ctx context.Context, c *container, grace time.Duration) error {
	n.mu.Lock()
	running := c.running()
	if running && grace > 0 && !c.signaled {
		c.signaled = true
		n.term(c)
	}
	n.mu.Unlock()
	if !running {
		return nil
	}
	if grace > 0 {
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.ended:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
	n.mu.Lock()
	if !c.behavior.Unkillable {
		n.exit(c, killedCode, "")
	}
	n.mu.Unlock()
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("an error occurs during waiting for container %q to be killed: %w", c.id, context.Cause(ctx))
	}
}

// RemoveContainer removes a container. It kills a running container first.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	about := Call{Method: "RemoveContainer", ID: id, Request: &runtimeapi.RemoveContainerRequest{ContainerId: id}}
	return do(ctx, r, about, func(ctx context.Context) error { return r.node.removeContainer(ctx, id) })
}

func (n *node) removeContainer(ctx context.Context, id string) error {
	n.mu.Lock()
	c := n.containers[id]
	n.mu.Unlock()
	if c == nil {
		return nil
	}
	if err := n.stopContainer(ctx, c, 0); err != nil {
		return fmt.Errorf("failed to forcibly stop container %q: %w", id, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.starting || c.running() {
		return unknown(fmt.Sprintf("failed to set removing state for container %q: container is in starting state, "+
			"can't be removed", id))
	}
	if n.containers[id] != nil {
		delete(n.containers, id)
		n.emit(cri.ContainerDeleted, id, c.pod)
	}
	return nil
}

// ContainerStatus returns a container's status; class NotFound if there is none of that id.
func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	n := r.node
	about := Call{Method: "ContainerStatus", ID: id, Request: &runtimeapi.ContainerStatusRequest{ContainerId: id}}
	return call(ctx, r, about, func(context.Context) (*runtimeapi.ContainerStatus, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		c := n.containers[id]
		if c == nil {
			return nil, noContainer(id)
		}
		return n.containerStatus(c), nil
	})
}

// ListContainers returns the containers that match, oldest first.
func (r *Runtime) ListContainers(
	ctx context.Context, filter *runtimeapi.ContainerFilter,
) ([]*runtimeapi.Container, error) {
	n := r.node
	about := Call{Method: "ListContainers", Request: &runtimeapi.ListContainersRequest{Filter: filter}}
	return call(ctx, r, about, func(context.Context) ([]*runtimeapi.Container, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		var list []*runtimeapi.Container
		for _, c := range n.chosenContainers(func(c *container) bool {
			return (filter.GetId() == "" || filter.GetId() == c.id) &&
				(filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == c.sandboxID) &&
				(filter.GetState() == nil || filter.GetState().GetState() == c.state()) &&
				selects(filter.GetLabelSelector(), c.config.GetLabels())
		}) {
			list = append(list, c.item())
		}
		return list, nil
	})
}

// UpdateContainerResources changes a container's resources. The container's status has the new
// ones.
func (r *Runtime) UpdateContainerResources(
	ctx context.Context, id string, resources *runtimeapi.ContainerResources,
) error {
	n := r.node
	request := &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: resources.GetLinux()}
	return do(ctx, r, Call{Method: "UpdateContainerResources", ID: id, Request: request}, func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		c := n.containers[id]
		switch {
		case c == nil:
			return noContainer(id)
		case c.state() == runtimeapi.ContainerState_CONTAINER_EXITED:
			return unknown(fmt.Sprintf("failed to update resources: failed to update container %q: container is exited",
				id))
		}
		c.resources = mergeResources(c.resources, resources)
		return nil
	})
}

// ReopenContainerLog makes a running container write to a new log file after the old one was
// renamed.
func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	n := r.node
	about := Call{Method: "ReopenContainerLog", ID: id, Request: &runtimeapi.ReopenContainerLogRequest{ContainerId: id}}
	return do(ctx, r, about, func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		c := n.containers[id]
		switch {
		case c == nil:
			return noContainer(id)
		case !c.running():
			return unknown("container is not running")
		}
		return n.writeLog(c)
	})
}

// CheckpointContainer writes a few words into the file to which a runtime would write the state of
// a running container.
func (r *Runtime) CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error {
	n := r.node
	about := Call{
		Method: "CheckpointContainer", ID: id,
		Request: &runtimeapi.CheckpointContainerRequest{
			ContainerId: id, Location: location, Timeout: int64(timeout / time.Second),
		},
	}
	return do(ctx, r, about, func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		c := n.containers[id]
		switch {
		case c == nil:
			return noContainer(id)
		case !c.running():
			return unknown(fmt.Sprintf("container %q is not running", id))
		}
		return os.WriteFile(location, []byte("checkpoint of "+id+"\n"), 0o600)
	})
}

func noContainer(id string) error {
	return errdefs.ErrNotFound.WithMessage(fmt.Sprintf("an error occurred when try to find container %q: not found",
		id))
}
