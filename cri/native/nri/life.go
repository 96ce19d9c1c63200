package nri

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/runtime-tools/generate"
	"github.com/opencontainers/runtime-spec/specs-go"
	toolsgen "github.com/opencontainers/runtime-tools/generate"
	"google.golang.org/protobuf/proto"

	"github.com/berthd/berth/cri/internal/classify"
)

// A plugin that connects is told of everything at once, and of each step from then on. No step may
// fall in between, so each of them blocks that for as long as it takes.

// RunPodSandbox tells plugins of a sandbox that is ready. An error of one says that the sandbox
// must not run; the others are told that it is gone.
func (p *Plugins) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	if p == nil {
		return nil
	}
	if err := p.run(ctx, pod); err != nil {
		p.StopPodSandbox(ctx, pod.GetId())
		p.RemovePodSandbox(ctx, pod.GetId())
		return refused(ctx, "the sandbox", err)
	}
	return nil
}

func (p *Plugins) run(ctx context.Context, pod *api.PodSandbox) error {
	defer p.asked.BlockPluginSync().Unblock()
	p.mu.Lock()
	p.pods[pod.GetId()] = pod
	p.mu.Unlock()
	return p.asked.RunPodSandbox(ctx, &api.RunPodSandboxRequest{Pod: proto.CloneOf(pod)})
}

// refused is the error of what plugins were asked about.
func refused(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("ask NRI plugins about %s: %w", what, context.Cause(ctx))
	}
	return classify.As(errdefs.ErrFailedPrecondition, fmt.Sprintf("an NRI plugin refuses %s: %v", what, err))
}

// StopPodSandbox tells plugins that a sandbox is being stopped, if they know it.
func (p *Plugins) StopPodSandbox(ctx context.Context, id string) {
	if p == nil {
		return
	}
	defer p.asked.BlockPluginSync().Unblock()
	if pod := p.pod(id); pod != nil {
		err := p.asked.StopPodSandbox(context.WithoutCancel(ctx), &api.StopPodSandboxRequest{Pod: pod})
		p.report("the stop of a sandbox", id, err)
	}
}

// RemovePodSandbox tells plugins that a sandbox is gone, if they know it.
func (p *Plugins) RemovePodSandbox(ctx context.Context, id string) {
	if p == nil {
		return
	}
	defer p.asked.BlockPluginSync().Unblock()
	pod := p.pod(id)
	if pod == nil {
		return
	}
	err := p.asked.RemovePodSandbox(context.WithoutCancel(ctx), &api.RemovePodSandboxRequest{Pod: pod})
	p.report("the removal of a sandbox", id, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, id)
}

// pod returns a copy of a sandbox as plugins were told of it, nil if they were not.
func (p *Plugins) pod(id string) *api.PodSandbox {
	p.mu.Lock()
	defer p.mu.Unlock()
	return proto.CloneOf(p.pods[id])
}

// Rules are the runtime's own rules for what plugins want of a container.
type Rules struct {
	// InjectCDI adds CDI devices by their names.
	InjectCDI func(*specs.Spec, []string) error
	// CheckResources changes limits that this machine does not have.
	CheckResources func(*specs.LinuxResources) error
}

// CreateContainer asks plugins about a container that is being made, and changes its spec as they
// want. An error of one says that the container must not be made; the others are told that it is
// gone. c is what the spec says before.
func (p *Plugins) CreateContainer(ctx context.Context, c *api.Container, spec *specs.Spec, rules Rules) error {
	if p == nil {
		return nil
	}
	if err := p.create(ctx, c, spec, rules); err != nil {
		p.RemoveContainer(ctx, c.GetId())
		return err
	}
	return nil
}

func (p *Plugins) create(ctx context.Context, c *api.Container, spec *specs.Spec, rules Rules) error {
	defer p.asked.BlockPluginSync().Unblock()
	p.mu.Lock()
	p.containers[c.GetId()] = c
	p.mu.Unlock()
	answer, err := p.asked.CreateContainer(ctx, &api.CreateContainerRequest{
		Pod: p.pod(c.GetPodSandboxId()), Container: proto.CloneOf(c),
	})
	if err != nil {
		return refused(ctx, "the container", err)
	}
	tools := toolsgen.NewFromSpec(spec)
	adjusted := generate.SpecGenerator(&tools, generate.WithCDIDeviceInjector(rules.InjectCDI),
		generate.WithResourceChecker(rules.CheckResources))
	if err := adjusted.Adjust(answer.GetAdjust()); err != nil {
		return fmt.Errorf("what an NRI plugin wants of the container cannot be done: %w", err)
	}
	p.want(answer.GetUpdate())
	return nil
}

// PostCreateContainer tells plugins that a container was made. change notes what they have made of
// it.
func (p *Plugins) PostCreateContainer(ctx context.Context, id string, change func(*api.Container)) {
	p.noteAndTell(ctx, id, "the creation", change, func(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
		return p.asked.PostCreateContainer(ctx, &api.PostCreateContainerRequest{Pod: pod, Container: c})
	})
}

// StartContainer tells plugins that a container is about to start. An error of one says that it
// must not.
func (p *Plugins) StartContainer(ctx context.Context, id string, pid uint32) error {
	if p == nil {
		return nil
	}
	defer p.asked.BlockPluginSync().Unblock()
	p.note(id, func(c *api.Container) { c.Pid = pid })
	pod, c, known := p.told(id)
	if !known {
		return nil
	}
	if err := p.asked.StartContainer(ctx, &api.StartContainerRequest{Pod: pod, Container: c}); err != nil {
		return refused(ctx, "the start", err)
	}
	return nil
}

// PostStartContainer tells plugins that a container runs.
func (p *Plugins) PostStartContainer(ctx context.Context, id string, startedAt int64) {
	running := func(c *api.Container) { c.State, c.StartedAt = api.ContainerState_CONTAINER_RUNNING, startedAt }
	p.noteAndTell(ctx, id, "the start", running, func(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
		return p.asked.PostStartContainer(ctx, &api.PostStartContainerRequest{Pod: pod, Container: c})
	})
}

// UpdateContainer asks plugins about new limits of a container, and returns those that it gets. An
// error of one says that the old ones stay.
func (p *Plugins) UpdateContainer(
	ctx context.Context, id string, limits *api.LinuxResources,
) (*api.LinuxResources, error) {
	if p == nil {
		return limits, nil
	}
	defer p.asked.BlockPluginSync().Unblock()
	pod, c, known := p.told(id)
	if !known {
		return limits, nil
	}
	p.supersede(id)
	answer, err := p.asked.UpdateContainer(ctx,
		&api.UpdateContainerRequest{Pod: pod, Container: c, LinuxResources: proto.CloneOf(limits)})
	if err != nil {
		return nil, refused(ctx, "the limits", err)
	}
	var others []*api.ContainerUpdate
	for _, u := range answer.GetUpdate() {
		if u == nil || u.GetContainerId() != id {
			others = append(others, u)
		} else if wanted := u.GetLinux().GetResources().Strip(); wanted != nil { // nil is as it was asked
			limits = wanted
		}
	}
	p.want(others)
	return limits, nil
}

// supersede drops what plugins wanted of a container, and nobody has done yet.
func (p *Plugins) supersede(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = slices.DeleteFunc(p.wanted, func(u *api.ContainerUpdate) bool { return u.GetContainerId() == id })
}

// PostUpdateContainer tells plugins that a container has new limits.
func (p *Plugins) PostUpdateContainer(ctx context.Context, id string, limits *api.LinuxResources) {
	tell := func(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
		return p.asked.PostUpdateContainer(ctx, &api.PostUpdateContainerRequest{Pod: pod, Container: c})
	}
	p.noteAndTell(ctx, id, "an update", hasLimits(limits), tell)
}

// StopContainer tells plugins that a container has ended, once.
func (p *Plugins) StopContainer(ctx context.Context, id string, exitCode int32, finishedAt int64) {
	if p == nil {
		return
	}
	defer p.asked.BlockPluginSync().Unblock()
	ended := func(c *api.Container) {
		if c.GetState() != api.ContainerState_CONTAINER_STOPPED {
			c.State, c.Pid, c.ExitCode, c.FinishedAt = api.ContainerState_CONTAINER_STOPPED, 0, exitCode, finishedAt
		}
	}
	if !p.note(id, ended) {
		return
	}
	pod, c, _ := p.told(id)
	answer, err := p.asked.StopContainer(context.WithoutCancel(ctx), &api.StopContainerRequest{Pod: pod, Container: c})
	p.want(answer.GetUpdate())
	p.report("the end of a container", id, err)
}

// RemoveContainer tells plugins that a container is gone, if they know it.
func (p *Plugins) RemoveContainer(ctx context.Context, id string) {
	gone := func(ctx context.Context, pod *api.PodSandbox, c *api.Container) error {
		err := p.asked.RemoveContainer(ctx, &api.RemoveContainerRequest{Pod: pod, Container: c})
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.containers, id)
		return err
	}
	p.noteAndTell(ctx, id, "the removal", func(*api.Container) {}, gone)
}

// noteAndTell notes what is so of a container, and tells plugins, which have no say in it: they are
// told even if the caller has given up.
func (p *Plugins) noteAndTell(
	ctx context.Context, id, what string, change func(*api.Container),
	tell func(context.Context, *api.PodSandbox, *api.Container) error,
) {
	if p == nil {
		return
	}
	defer p.asked.BlockPluginSync().Unblock()
	p.note(id, change)
	if pod, c, known := p.told(id); known {
		p.report(what+" of a container", id, tell(context.WithoutCancel(ctx), pod, c))
	}
}

// report logs that a plugin failed at something in which it has no say.
func (p *Plugins) report(what, id string, err error) {
	if err != nil {
		p.log.Warn("an NRI plugin failed at "+what, "id", id, "err", err)
	}
}
