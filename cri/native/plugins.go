package native

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/native/nri"
)

// preparePlugins prepares the NRI plugins, if there are to be some.
func (r *Runtime) preparePlugins() (err error) {
	if r.cfg.NRI != nil {
		r.plugins, err = nri.New(*r.cfg.NRI, r.cfg.Version, &pluginHost{r}, r.cfg.Logger)
	}
	return err
}

// startPlugins starts the NRI plugins, and has them told of what an earlier process of berth made.
func (r *Runtime) startPlugins(ctx context.Context) error {
	if r.plugins == nil {
		return nil
	}
	var pods []*api.PodSandbox
	for _, sb := range r.store.allSandboxes() {
		pods = append(pods, pluginPod(sb))
	}
	var present []*api.Container
	var of []*container
	for _, c := range r.store.containersOf("") {
		if record := c.snapshot(); record.state() == runtimeapi.ContainerState_CONTAINER_EXITED {
			continue
		}
		made, err := r.client.LoadContainer(ctx, c.id)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("tell NRI plugins of container %s: %w", c.id, err)
		}
		spec, err := made.Spec(ctx)
		if err != nil {
			return fmt.Errorf("tell NRI plugins of container %s: %w", c.id, err)
		}
		present, of = append(present, pluginContainer(c, spec)), append(of, c)
	}
	if err := r.plugins.Start(ctx, pods, present); err != nil {
		return err
	}
	for _, c := range of {
		if record := c.snapshot(); record.state() == runtimeapi.ContainerState_CONTAINER_EXITED {
			r.plugins.StopContainer(ctx, c.id, record.ExitCode, record.FinishedAt) // it ended meanwhile
		}
	}
	return nil
}

// pluginHost does what plugins want of containers.
type pluginHost struct{ runtime *Runtime }

var _ nri.Host = (*pluginHost)(nil)

// UpdateResources implements [nri.Host].
func (h *pluginHost) UpdateResources(
	ctx context.Context, id string, limits *api.LinuxResources,
) (*api.LinuxResources, error) {
	c, err := h.runtime.store.container(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := h.runtime.bounded(ctx)
	defer cancel()
	wanted := func() (*specs.LinuxResources, error) { return h.runtime.limitsFrom(limits), nil }
	now, err := h.runtime.updateLimits(ctx, c, nil, wanted)
	return api.FromOCILinuxResources(now, nil), err
}

// withPlugins lets NRI plugins change the spec of a container.
func (r *Runtime) withPlugins(c *container) oci.SpecOpts {
	return func(ctx context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if r.plugins == nil {
			return nil
		}
		return r.plugins.CreateContainer(ctx, pluginContainer(c, s), s, nri.Rules{
			InjectCDI: r.injectCDI, CheckResources: func(l *specs.LinuxResources) error { r.possible(l); return nil },
		})
	}
}

// possible takes limits away that this machine's cgroups do not have.
func (r *Runtime) possible(limits *specs.LinuxResources) {
	if limits == nil {
		return
	}
	if limits.Memory != nil && r.cfg.NoSwapLimits {
		limits.Memory.Swap = nil
	}
	if !hasHugetlb() {
		limits.HugepageLimits = nil
	}
}

// pluginPod is a sandbox as NRI plugins see it.
func pluginPod(sb *sandbox) *api.PodSandbox {
	record, _ := sb.snapshot()
	meta, linux := sb.config.GetMetadata(), sb.config.GetLinux()
	pod := &api.PodSandbox{
		Id: sb.id, Name: meta.GetName(), Uid: meta.GetUid(), Namespace: meta.GetNamespace(),
		Labels: sb.config.GetLabels(), Annotations: sb.config.GetAnnotations(), RuntimeHandler: record.Handler,
		Pid: sb.pid(), Linux: &api.LinuxPodSandbox{
			CgroupParent: linux.GetCgroupParent(), PodOverhead: limitsOf(linux.GetOverhead()),
			PodResources: limitsOf(linux.GetResources()),
		},
	}
	for _, ip := range record.IPs {
		pod.Ips = append(pod.Ips, ip.String())
	}
	return proto.CloneOf(pod) // nothing of it is the config's
}

// pluginContainer is a container as NRI plugins see it.
func pluginContainer(c *container, s *specs.Spec) *api.Container {
	record := c.snapshot()
	out := &api.Container{
		Id: c.id, PodSandboxId: c.sandboxID, Name: c.config.GetMetadata().GetName(),
		State: api.ContainerState_CONTAINER_CREATED, Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		CreatedAt: record.CreatedAt, StartedAt: record.StartedAt, Pid: c.pid(),
		Image: &api.Image{Name: c.config.GetImage().GetImage(), Digest: record.ImageRef, ConfigDigest: record.ImageID},
	}
	if record.state() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		out.State = api.ContainerState_CONTAINER_RUNNING
	}
	for _, d := range c.config.GetCDIDevices() {
		out.CDIDevices = append(out.CDIDevices, &api.CDIDevice{Name: d.GetName()})
	}
	describe(out, s)
	return proto.CloneOf(out) // nothing of it is the config's or the spec's
}

// describe sets what a container's spec says.
func describe(c *api.Container, s *specs.Spec) {
	c.Mounts, c.Hooks = api.FromOCIMounts(s.Mounts), api.FromOCIHooks(s.Hooks)
	if p := s.Process; p != nil {
		c.Args, c.Env = p.Args, p.Env
		c.User = &api.User{Uid: p.User.UID, Gid: p.User.GID, AdditionalGids: p.User.AdditionalGids}
		c.Rlimits = nil
		for _, l := range p.Rlimits {
			c.Rlimits = append(c.Rlimits, &api.POSIXRlimit{Type: l.Type, Hard: l.Hard, Soft: l.Soft})
		}
	}
	if l := s.Linux; l != nil {
		c.Linux = &api.LinuxContainer{
			Namespaces: api.FromOCILinuxNamespaces(l.Namespaces), Devices: api.FromOCILinuxDevices(l.Devices),
			Resources: api.FromOCILinuxResources(l.Resources, nil), CgroupsPath: l.CgroupsPath, Sysctl: l.Sysctl,
		}
		if l.Seccomp != nil {
			c.Linux.SeccompPolicy = api.FromOCILinuxSeccomp(l.Seccomp)
		}
		if s.Process != nil {
			c.Linux.OomScoreAdj = api.Int(s.Process.OOMScoreAdj)
		}
	}
}

// limitsOf returns limits of the CRI in the form of the NRI. What is 0 or empty is not set.
func limitsOf(limits *runtimeapi.LinuxContainerResources) *api.LinuxResources {
	if limits == nil {
		return nil
	}
	return api.FromOCILinuxResources(resources(limits), nil)
}

// limitsFrom returns limits of the NRI that this machine has, in the form of the runtime spec.
// Devices and classes are not limits that a container can get later.
func (r *Runtime) limitsFrom(limits *api.LinuxResources) *specs.LinuxResources {
	out := limits.ToOCI()
	if out == nil {
		return &specs.LinuxResources{}
	}
	out.Devices = nil
	r.possible(out)
	return out
}
