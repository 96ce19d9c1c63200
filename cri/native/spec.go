package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/native/images"
)

const (
	// shim is containerd's shim for runc and programs that are called like it.
	shim = "io.containerd.runc.v2"
	// pauseShares and pauseOOMScore are those of every Kubernetes runtime's pause process: it needs
	// nearly no CPU, and the pod ends if it is killed.
	pauseShares, pauseOOMScore = 2, -998
	// systemdPrefix begins the names of the scopes that systemd makes.
	systemdPrefix = "berth"
	// serviceSlice is where systemd and runc put what names no slice (systemd.special(7)).
	serviceSlice = "system.slice"
)

// handler returns the shim's options for an OCI runtime.
func (r *Runtime) handler(name string) (*runcoptions.Options, error) {
	h, ok := r.cfg.Handlers[name]
	if !ok && name != "" {
		return nil, fmt.Errorf("no runtime for %q is configured: %w", name, errdefs.ErrInvalidArgument)
	}
	return &runcoptions.Options{BinaryName: h.Binary, Root: h.Root, SystemdCgroup: r.cfg.SystemdCgroups}, nil
}

// cgroup returns where a sandbox or a container is in the cgroup tree, in the form of the cgroup
// driver (runtime-spec, config-linux.md, "Cgroups Path"). A parent that is no slice, as that of
// pods without cgroups of their own, is for systemd the slice of services.
func (r *Runtime) cgroup(parent, id string) string {
	if r.cfg.SystemdCgroups {
		slice := filepath.Base(parent)
		if filepath.Ext(slice) != ".slice" {
			slice = serviceSlice
		}
		return fmt.Sprintf("%s:%s:%s", slice, systemdPrefix, id)
	}
	if parent == "" {
		parent = "/" + r.cfg.Namespace
	}
	return filepath.Join(parent, id)
}

// pauseSpec returns how the pause process runs.
func (r *Runtime) pauseSpec(sb *sandbox, img *images.Usable) []oci.SpecOpts {
	config := sb.config.GetLinux()
	security := config.GetSecurityContext()
	opts := []oci.SpecOpts{
		oci.WithoutRunMount,
		oci.WithImageConfig(img),
		oci.WithRootFSReadonly(),
		oci.WithCgroup(r.cgroup(config.GetCgroupParent(), sb.id)),
		oci.WithAnnotations(map[string]string{sandboxAnnotation: sb.id}),
		oci.WithHostname(sb.config.GetHostname()),
		oci.WithCPUShares(pauseShares),
		withOOMScore(pauseOOMScore),
		withSysctls(config.GetSysctls()),
		withRlimits,
	}
	if user := security.GetRunAsUser(); user != nil {
		opts = append(opts, oci.WithUser(userOf(user, security.GetRunAsGroup(), "")))
	}
	for kind, mode := range map[specs.LinuxNamespaceType]runtimeapi.NamespaceMode{
		specs.NetworkNamespace: sb.namespaces().GetNetwork(), specs.UTSNamespace: sb.namespaces().GetNetwork(),
		specs.IPCNamespace: sb.namespaces().GetIpc(), specs.PIDNamespace: sb.namespaces().GetPid(),
	} {
		if mode == runtimeapi.NamespaceMode_NODE {
			opts = append(opts, oci.WithHostNamespace(kind))
		}
	}
	if sb.hostNetwork() {
		opts = append(opts, oci.WithHostname("")) // it is the node's
	} else {
		opts = append(opts, join(specs.NetworkNamespace, r.netns(sb.id)))
	}
	opts = append(opts, oci.WithoutMounts("/dev/shm"), oci.WithMounts([]specs.Mount{r.shm(sb)}))
	opts = append(opts, userns(sb.namespaces()).namespace(r.pin(sb.id, specs.UserNamespace))...)
	record, _ := sb.snapshot()
	return append(opts, withConfinement(security.GetSeccomp(), security.GetApparmor()),
		withLabels(record.SELinux, security.GetPrivileged()), withVersion)
}

// shm returns the mount of the pod's shared memory.
func (r *Runtime) shm(sb *sandbox) specs.Mount {
	source := filepath.Join(r.sandboxDir(sb.id), shmDir)
	if sb.hostIPC() {
		source = "/dev/shm"
	}
	return specs.Mount{Destination: "/dev/shm", Type: "bind", Source: source, Options: []string{"rbind", "rw"}}
}

// userOf returns a user as image configs have it: "user" or "user:group".
func userOf(uid, gid *runtimeapi.Int64Value, name string) string {
	if uid != nil {
		name = strconv.FormatInt(uid.GetValue(), 10)
	}
	if gid != nil {
		name += ":" + strconv.FormatInt(gid.GetValue(), 10)
	}
	return name
}

// withOOMScore sets how readily the kernel kills the process when memory is short. Without
// CAP_SYS_RESOURCE nobody may go below the own value, so the process gets that one.
func withOOMScore(score int) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		if !mayLowerOOMScore() {
			own, err := ownOOMScore()
			if err != nil {
				return err
			}
			score = max(score, own)
		}
		s.Process.OOMScoreAdj = &score
		return nil
	}
}

func ownOOMScore() (int, error) {
	raw, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0, fmt.Errorf("read the own OOM score: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(raw)))
}

// mayLowerOOMScore reports whether this process has CAP_SYS_RESOURCE.
func mayLowerOOMScore() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func withSysctls(sysctls map[string]string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
		s.Linux.Sysctl = sysctls
		return nil
	}
}

// withRlimits leaves the limits to those that containerd itself has, as every Kubernetes runtime:
// a pod cannot ask for others.
func withRlimits(_ context.Context, _ oci.Client, _ *containers.Container, s *oci.Spec) error {
	s.Process.Rlimits = nil
	return nil
}

// withCgroupNamespace hides the node's cgroups from a container, where that works (cgroup v2).
func withCgroupNamespace(privileged bool) []oci.SpecOpts {
	if !cgroups.IsCgroup2UnifiedMode() || privileged {
		return nil
	}
	return []oci.SpecOpts{oci.WithLinuxNamespace(specs.LinuxNamespace{Type: specs.CgroupNamespace})}
}
