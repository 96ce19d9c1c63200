package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/native/images"
)

// defaultPath is the PATH of an image that sets none, and defaultTerm the TERM of a process with a
// terminal, as in Docker and containerd.
const (
	defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultTerm = "TERM=xterm"
)

// checkContainer returns an error for a config that cannot be carried out.
func checkContainer(config *runtimeapi.ContainerConfig) error {
	security := config.GetLinux().GetSecurityContext()
	switch {
	case config.GetMetadata().GetName() == "":
		return classify.Invalidf("create container: its config has no name")
	case config.GetImage().GetImage() == "":
		return classify.Invalidf("create container: its config has no image")
	case security.GetRunAsUser() != nil && security.GetRunAsUsername() != "":
		return classify.Invalidf("create container: both run_as_user and run_as_username are set")
	case security.GetRunAsGroup() != nil && security.GetRunAsUser() == nil && security.GetRunAsUsername() == "":
		return classify.Invalidf("create container: run_as_group is set without a user")
	}
	return nil
}

// containerSpec returns how a container of a sandbox runs.
func (r *Runtime) containerSpec(
	ctx context.Context, sb *sandbox, c *container, img *images.Usable, volumes *imageVolumes,
) ([]oci.SpecOpts, error) {
	config, security := c.config, c.config.GetLinux().GetSecurityContext()
	namespaces, err := r.containerNamespaces(sb, security.GetNamespaceOptions())
	if err != nil {
		return nil, err
	}
	has, err := r.containerLabels(sb, config)
	if err != nil {
		return nil, err
	}
	mounts, err := r.mounts(ctx, sb, config, volumes, has)
	if err != nil {
		return nil, err
	}
	opts := []oci.SpecOpts{
		oci.WithoutRunMount,
		withProcess(config, img),
		withUser(c.user(img)),
		withGroups(c.user(img), security),
		oci.WithCgroup(r.cgroup(sb.config.GetLinux().GetCgroupParent(), c.id)),
		sb.withShim(),
		withRlimits,
		withEnv(sb, config, img),
	}
	opts = append(opts, namespaces...)
	opts = append(opts, mounts, r.withDeclaredVolumes(sb, c, img, has))
	opts = append(opts, withSecurity(config)...)
	opts = append(opts, withCgroupNamespace(security.GetPrivileged())...)
	return append(opts, withResources(config.GetLinux().GetResources()),
		withOOMScore(int(config.GetLinux().GetResources().GetOomScoreAdj())), r.withCDI(config),
		withLabels(has, security.GetPrivileged()), r.withPlugins(c), withVersion), nil
}

// user returns the user of a container: what its config says, or else its image.
func (c *container) user(img *images.Usable) string {
	security := c.config.GetLinux().GetSecurityContext()
	if user := userOf(security.GetRunAsUser(), security.GetRunAsGroup(), security.GetRunAsUsername()); user != "" {
		return user
	}
	if img.Settings.User != "" {
		return img.Settings.User
	}
	return "0"
}

// withUser sets who the process is, in the form of an image's config. Names are those of the image.
func withUser(user string) oci.SpecOpts {
	return func(ctx context.Context, client oci.Client, c *containers.Container, s *oci.Spec) error {
		if err := oci.WithUser(user)(ctx, client, c, s); err != nil {
			return fmt.Errorf("look for user %q in the image: %w", user, err)
		}
		return nil
	}
}

// withGroups sets the further groups of a container's process: those that the image's /etc/group
// gives its user, unless the policy is Strict, and those of the config.
func withGroups(user string, security *runtimeapi.LinuxContainerSecurityContext) oci.SpecOpts {
	return func(ctx context.Context, client oci.Client, c *containers.Container, s *oci.Spec) error {
		name, _, _ := strings.Cut(user, ":")
		if security.GetSupplementalGroupsPolicy() != runtimeapi.SupplementalGroupsPolicy_Strict {
			if err := oci.WithAdditionalGIDs(name)(ctx, client, c, s); err != nil {
				return err
			}
		}
		groups := append([]uint32{s.Process.User.GID}, s.Process.User.AdditionalGids...)
		for _, g := range security.GetSupplementalGroups() {
			groups = append(groups, uint32(g))
		}
		slices.Sort(groups)
		s.Process.User.AdditionalGids = slices.Compact(groups)
		return nil
	}
}

// withProcess sets what runs. A command replaces the image's entrypoint and its arguments, and
// arguments alone replace the image's arguments.
func withProcess(config *runtimeapi.ContainerConfig, img *images.Usable) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		command, args := config.GetCommand(), config.GetArgs()
		if len(command) == 0 {
			command = img.Settings.Entrypoint
			if len(args) == 0 {
				args = img.Settings.Cmd
			}
		}
		s.Process.Args = slices.Concat(command, args)
		if len(s.Process.Args) == 0 {
			return classify.Invalidf("neither the container nor its image %s has a command", config.GetImage().GetImage())
		}
		s.Process.Cwd = config.GetWorkingDir()
		if s.Process.Cwd == "" {
			s.Process.Cwd = filepath.Join("/", img.Settings.WorkingDir)
		}
		s.Process.Terminal = config.GetTty()
		return nil
	}
}

// withEnv sets the environment: the image's, then the config's. Of equal names the last one counts.
func withEnv(sb *sandbox, config *runtimeapi.ContainerConfig, img *images.Usable) oci.SpecOpts {
	return func(ctx context.Context, client oci.Client, c *containers.Container, s *oci.Spec) error {
		name, err := sb.hostname()
		if err != nil {
			return err
		}
		s.Process.Env = []string{defaultPath, "HOSTNAME=" + name}
		if config.GetTty() {
			s.Process.Env = append(s.Process.Env, defaultTerm)
		}
		more := slices.Clone(img.Settings.Env)
		for _, e := range config.GetEnvs() {
			more = append(more, e.GetKey()+"="+string(e.GetValue()))
		}
		return oci.WithEnv(more)(ctx, client, c, s)
	}
}

// containerNamespaces returns the namespaces of a container: those of its sandbox, and its own PID
// namespace unless its config says otherwise.
func (r *Runtime) containerNamespaces(sb *sandbox, asked *runtimeapi.NamespaceOption) ([]oci.SpecOpts, error) {
	if _, ready := sb.snapshot(); !ready {
		return nil, classify.As(errdefs.ErrFailedPrecondition, "sandbox "+sb.id+" is not ready")
	}
	var opts []oci.SpecOpts
	for _, kind := range []specs.LinuxNamespaceType{specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace} {
		opts = append(opts, join(kind, r.namespace(sb, kind)))
	}
	if sb.hostNetwork() {
		opts = append(opts, oci.WithHostNamespace(specs.NetworkNamespace), oci.WithHostNamespace(specs.UTSNamespace))
	}
	if sb.hostIPC() {
		opts = append(opts, oci.WithHostNamespace(specs.IPCNamespace))
	}
	switch asked.GetPid() {
	case runtimeapi.NamespaceMode_POD:
		if !sb.pause {
			return nil, classify.As(errdefs.ErrFailedPrecondition, "sandbox "+sb.id+
				" has no PID namespace to share, because its own config does not ask for one")
		}
		opts = append(opts, join(specs.PIDNamespace, r.namespace(sb, specs.PIDNamespace)))
	case runtimeapi.NamespaceMode_NODE:
		opts = append(opts, oci.WithHostNamespace(specs.PIDNamespace))
	case runtimeapi.NamespaceMode_TARGET:
		targetPID, err := r.target(sb, asked)
		if err != nil {
			return nil, err
		}
		opts = append(opts, join(specs.PIDNamespace, processNamespace(targetPID, specs.PIDNamespace)))
	}
	return append(opts, userns(sb.namespaces()).namespace(r.namespace(sb, specs.UserNamespace))...), nil
}

// target returns the first process of the container whose processes another one is to share. It has
// the same one as long as it runs; afterwards that process ID may be anybody's.
func (r *Runtime) target(sb *sandbox, asked *runtimeapi.NamespaceOption) (uint32, error) {
	target, err := r.store.container(asked.GetTargetId())
	if err != nil {
		return 0, foreign(err)
	}
	pid := target.pid()
	if pid == 0 || target.sandboxID != sb.id {
		return 0, classify.As(errdefs.ErrFailedPrecondition,
			"container "+asked.GetTargetId()+", whose processes are to be shared, does not run in this pod")
	}
	return pid, nil
}

// withSecurity returns what a container may do.
func withSecurity(config *runtimeapi.ContainerConfig) []oci.SpecOpts {
	security := config.GetLinux().GetSecurityContext()
	opts := []oci.SpecOpts{withNoNewPrivileges(security.GetNoNewPrivs())}
	if security.GetReadonlyRootfs() {
		opts = append(opts, oci.WithRootFSReadonly())
	}
	if security.GetPrivileged() {
		return append(opts, oci.WithPrivileged, oci.WithHostDevices, oci.WithAllDevicesAllowed, withDevices(config))
	}
	return append(opts, oci.WithDefaultUnixDevices, withDevices(config),
		oci.WithMaskedPaths(security.GetMaskedPaths()), oci.WithReadonlyPaths(security.GetReadonlyPaths()),
		withCapabilities(security.GetCapabilities()),
		withConfinement(security.GetSeccomp(), security.GetApparmor()))
}

func withNoNewPrivileges(on bool) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Process.NoNewPrivileges = on
		return nil
	}
}

// withDevices adds the devices that the config names.
func withDevices(config *runtimeapi.ContainerConfig) oci.SpecOpts {
	var opts []oci.SpecOpts
	for _, d := range config.GetDevices() {
		path, err := filepath.EvalSymlinks(d.GetHostPath())
		if err != nil {
			return fails(classify.Invalidf("device %s: %v", d.GetHostPath(), err))
		}
		opts = append(opts, oci.WithDevices(path, d.GetContainerPath(), d.GetPermissions()))
	}
	return oci.Compose(opts...)
}

// fails is an option that cannot be carried out.
func fails(err error) oci.SpecOpts {
	return func(context.Context, oci.Client, *containers.Container, *oci.Spec) error { return err }
}

// withCapabilities adds capabilities to the default ones and drops others. ALL comes first, as in
// Docker: {add: ALL, drop: X} is all but X, and {drop: ALL, add: X} is X alone.
func withCapabilities(asked *runtimeapi.Capability) oci.SpecOpts {
	names := func(list []string) (all bool, out []string) {
		for _, name := range list {
			if strings.EqualFold(name, "ALL") {
				all = true
				continue
			}
			name = strings.ToUpper(name)
			if !strings.HasPrefix(name, "CAP_") {
				name = "CAP_" + name
			}
			out = append(out, name)
		}
		return all, out
	}
	addAll, add := names(asked.GetAddCapabilities())
	dropAll, drop := names(asked.GetDropCapabilities())
	_, ambient := names(asked.GetAddAmbientCapabilities())
	var opts []oci.SpecOpts
	if addAll {
		opts = append(opts, oci.WithAllCurrentCapabilities)
	}
	if dropAll {
		opts = append(opts, oci.WithCapabilities(nil))
	}
	return oci.Compose(append(opts, oci.WithAddedCapabilities(add), oci.WithDroppedCapabilities(drop),
		oci.WithAmbientCapabilities(ambient))...)
}

// withResources sets the limits.
func withResources(asked *runtimeapi.LinuxContainerResources) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if s.Linux.Resources == nil {
			s.Linux.Resources = &specs.LinuxResources{}
		}
		limits := resources(asked)
		limits.Devices = s.Linux.Resources.Devices
		s.Linux.Resources = limits
		return nil
	}
}

// hasHugetlb reports whether the machine limits huge pages: whether its cgroups have the
// controller.
var hasHugetlb = sync.OnceValue(func() bool {
	if cgroups.IsCgroup2UnifiedMode() {
		controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
		return err == nil && slices.Contains(strings.Fields(string(controllers)), "hugetlb")
	}
	_, err := cgroups.FindCgroupMountpoint("", "hugetlb")
	return err == nil
})

// resources returns limits in the form of the runtime-spec. What is 0 or empty stays as it is.
// Limits of huge pages are left out on a machine that cannot have any.
func resources(asked *runtimeapi.LinuxContainerResources) *specs.LinuxResources {
	cpu, memory := &specs.LinuxCPU{Cpus: asked.GetCpusetCpus(), Mems: asked.GetCpusetMems()}, &specs.LinuxMemory{}
	if v := uint64(asked.GetCpuPeriod()); v > 0 {
		cpu.Period = &v
	}
	if v := asked.GetCpuQuota(); v != 0 {
		cpu.Quota = &v
	}
	if v := uint64(asked.GetCpuShares()); v > 0 {
		cpu.Shares = &v
	}
	if v := asked.GetMemoryLimitInBytes(); v > 0 {
		memory.Limit = &v
	}
	if v := asked.GetMemorySwapLimitInBytes(); v > 0 {
		memory.Swap = &v
	}
	out := &specs.LinuxResources{CPU: cpu, Memory: memory, Unified: asked.GetUnified()}
	for _, l := range asked.GetHugepageLimits() {
		if !hasHugetlb() {
			break
		}
		out.HugepageLimits = append(out.HugepageLimits,
			specs.LinuxHugepageLimit{Pagesize: l.GetPageSize(), Limit: l.GetLimit()})
	}
	return out
}

// reported returns limits of a runtime spec in the form of the CRI, which does not have all.
func reported(limits *specs.LinuxResources) *runtimeapi.LinuxContainerResources {
	out := &runtimeapi.LinuxContainerResources{Unified: limits.Unified}
	if cpu := limits.CPU; cpu != nil {
		out.CpuPeriod, out.CpuQuota = int64(ptr.Deref(cpu.Period, 0)), ptr.Deref(cpu.Quota, 0)
		out.CpuShares = int64(ptr.Deref(cpu.Shares, 0))
		out.CpusetCpus, out.CpusetMems = cpu.Cpus, cpu.Mems
	}
	if memory := limits.Memory; memory != nil {
		out.MemoryLimitInBytes = ptr.Deref(memory.Limit, 0)
		out.MemorySwapLimitInBytes = ptr.Deref(memory.Swap, 0)
	}
	for _, l := range limits.HugepageLimits {
		out.HugepageLimits = append(out.HugepageLimits, &runtimeapi.HugepageLimit{PageSize: l.Pagesize, Limit: l.Limit})
	}
	return out
}
