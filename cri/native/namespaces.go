package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/containerd/v2/pkg/sys"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/internal/thread"
)

// namespaceNames are the names of namespaces below /proc/PID/ns.
var namespaceNames = map[specs.LinuxNamespaceType]string{
	specs.NetworkNamespace: "net", specs.IPCNamespace: "ipc", specs.UTSNamespace: "uts", specs.PIDNamespace: "pid",
	specs.UserNamespace: "user",
}

// cloneFlags make new namespaces (unshare(2)).
var cloneFlags = map[specs.LinuxNamespaceType]int{
	specs.NetworkNamespace: unix.CLONE_NEWNET, specs.IPCNamespace: unix.CLONE_NEWIPC,
	specs.UTSNamespace: unix.CLONE_NEWUTS,
}

// pin is the path by which a namespace of a sandbox is kept without a process. The network's is
// kept in every sandbox: after the end of the pause process, plugins still have to take the network
// down.
func (r *Runtime) pin(id string, kind specs.LinuxNamespaceType) string {
	if kind == specs.NetworkNamespace {
		return r.netns(id)
	}
	return filepath.Join(r.sandboxDir(id), namespaceNames[kind]+"-namespace")
}

// own returns the namespaces that berth itself makes for a sandbox. A pause process has the others.
func (s *sandbox) own() []specs.LinuxNamespaceType {
	var out []specs.LinuxNamespaceType
	if userns(s.namespaces()).own() {
		out = append(out, specs.UserNamespace)
	}
	if !s.hostNetwork() {
		out = append(out, specs.NetworkNamespace)
	}
	if s.pause {
		return out
	}
	if !s.hostNetwork() {
		out = append(out, specs.UTSNamespace)
	}
	if !s.hostIPC() {
		out = append(out, specs.IPCNamespace)
	}
	return out
}

// namespace returns the path of a namespace that a sandbox shares with its containers.
func (r *Runtime) namespace(sb *sandbox, kind specs.LinuxNamespaceType) string {
	if !sb.pause || kind == specs.NetworkNamespace || kind == specs.UserNamespace {
		return r.pin(sb.id, kind)
	}
	return processNamespace(sb.pid(), kind)
}

// processNamespace returns the path of a namespace of a process.
func processNamespace(pid uint32, kind specs.LinuxNamespaceType) string {
	return fmt.Sprintf("/proc/%d/ns/%s", pid, namespaceNames[kind])
}

// join puts a container into the namespace at a path.
func join(kind specs.LinuxNamespaceType, path string) oci.SpecOpts {
	return oci.WithLinuxNamespace(specs.LinuxNamespace{Type: kind, Path: path})
}

// makeNamespaces makes the namespaces of a sandbox, and keeps them by mounts. They belong to the
// sandbox's user namespace, if it has one.
func (r *Runtime) makeNamespaces(_ context.Context, sb *sandbox) error {
	kinds := sb.own()
	flags := 0
	for _, kind := range kinds {
		flags |= cloneFlags[kind]
	}
	keep := func(process string) error {
		for _, kind := range kinds {
			path := r.pin(sb.id, kind)
			if err := keepNamespace(path, filepath.Join(process, "ns", namespaceNames[kind])); err != nil {
				return fmt.Errorf("keep its %s namespace at %s: %w", namespaceNames[kind], path, err)
			}
		}
		return nil
	}
	var err error
	if m := userns(sb.namespaces()); m.own() {
		err = m.unshare(flags, func(pid int) error { return keep(fmt.Sprintf("/proc/%d", pid)) })
	} else {
		err = thread.Own(func() error {
			if err := unix.Unshare(flags); err != nil {
				return fmt.Errorf("make its namespaces: %w", err)
			}
			return keep("/proc/thread-self")
		})
	}
	if err != nil {
		return err
	}
	return thread.Own(func() error { return r.prepareNamespaces(sb) })
}

// unshare calls f with a process in a new user namespace, and in new namespaces that belong to it.
func (m mappings) unshare(flags int, f func(pid int) error) error {
	if len(m.uids) != 1 || len(m.gids) != 1 {
		return classify.Invalidf("a user namespace needs one range of users and one of groups, not %d and %d",
			len(m.uids), len(m.gids))
	}
	format := func(one specs.LinuxIDMapping) string {
		return fmt.Sprintf("%d:%d:%d", one.ContainerID, one.HostID, one.Size)
	}
	err := sys.UnshareAfterEnterUserns(format(m.uids[0]), format(m.gids[0]), uintptr(flags), f)
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("make its user namespace (hostUsers: false; a service needs "+
			"RestrictNamespaces=user, ptrace in SystemCallFilter, CAP_SETUID and CAP_SETGID for it): %w", err)
	}
	return err
}

// enterNamespaces puts the calling thread into the namespaces of a sandbox, where it stays.
func (r *Runtime) enterNamespaces(sb *sandbox) error {
	for _, kind := range sb.own() {
		if kind == specs.UserNamespace {
			continue // its owner need not enter it
		}
		if err := enterNamespace(r.pin(sb.id, kind), cloneFlags[kind]); err != nil {
			return err
		}
	}
	return nil
}

// prepareNamespaces does in a sandbox's namespaces what an OCI runtime does in new ones. The
// calling thread stays in them.
func (r *Runtime) prepareNamespaces(sb *sandbox) error {
	if err := r.enterNamespaces(sb); err != nil {
		return err
	}
	if !sb.hostNetwork() {
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("set its loopback device up: %w", err)
		}
	}
	if sb.pause {
		return nil // its OCI runtime does the rest
	}
	if name := sb.config.GetHostname(); name != "" && !sb.hostNetwork() {
		if err := unix.Sethostname([]byte(name)); err != nil {
			return fmt.Errorf("set its host name: %w", err)
		}
	}
	return nil
}

// ipcSysctls are the sysctls of an IPC namespace, but those below fs.mqueue (ipc_namespaces(7)).
const ipcSysctls = " kernel.msgmax kernel.msgmnb kernel.msgmni kernel.sem kernel.shmall kernel.shmmax kernel.shmmni " +
	"kernel.shm_rmid_forced "

// networkSysctls begins the names of the sysctls of a network namespace.
const networkSysctls = "net."

// hasNetworkSysctls reports whether the sandbox's config has sysctls of its network namespace.
func (s *sandbox) hasNetworkSysctls() bool {
	for name := range s.config.GetLinux().GetSysctls() {
		if strings.HasPrefix(name, networkSysctls) {
			return true
		}
	}
	return false
}

// setSysctls sets a sandbox's sysctls. Those of the node stay as they are. With a pause process,
// its OCI runtime has set them.
func (r *Runtime) setSysctls(_ context.Context, sb *sandbox) error {
	sysctls := sb.config.GetLinux().GetSysctls()
	if sb.pause || len(sysctls) == 0 {
		return nil
	}
	return thread.Own(func() error {
		if err := r.enterNamespaces(sb); err != nil {
			return err
		}
		for name, value := range sysctls {
			if err := sb.setSysctl(name, value); err != nil {
				return err
			}
		}
		return nil
	})
}

// setSysctl sets a sysctl in the namespaces of the calling thread.
func (s *sandbox) setSysctl(name, value string) error {
	network := strings.HasPrefix(name, networkSysctls) && !s.hostNetwork()
	ipc := strings.HasPrefix(name, "fs.mqueue.") || strings.Contains(ipcSysctls, " "+name+" ")
	if !network && (!ipc || s.hostIPC()) {
		return classify.Invalidf("the pod has no sysctl %s of its own", name)
	}
	path := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set the sysctl %s: %w", name, err)
	}
	return nil
}

// raiseLoopback sets the loopback device of the thread's network namespace up (netdevice(7)).
func raiseLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	device, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	device.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, device)
}

// enterNamespace puts the calling thread into the namespace at a path.
func enterNamespace(path string, kind int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Setns(fd, kind)
		_ = unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("enter the namespace %s: %w", path, err)
	}
	return nil
}

// keepNamespace mounts a namespace at a path.
func keepNamespace(path, namespace string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
	if err != nil {
		return err
	}
	_ = file.Close()
	return unix.Mount(namespace, path, "", unix.MS_BIND, "")
}

// removeNamespaces gives back the namespaces of a sandbox but for the network's, which goes with
// the network.
func (r *Runtime) removeNamespaces(_ context.Context, sb *sandbox) error {
	for _, kind := range []specs.LinuxNamespaceType{specs.UTSNamespace, specs.IPCNamespace, specs.UserNamespace} {
		if err := unmountAndRemove(r.pin(sb.id, kind)); err != nil {
			return err
		}
	}
	return nil
}

// kept reports whether all namespaces of a sandbox are still there. A restart of the machine takes
// them.
func (r *Runtime) kept(sb *sandbox) bool {
	if _, err := os.Stat(r.sandboxDir(sb.id)); err != nil {
		return false
	}
	for _, kind := range sb.own() {
		if !isNamespace(r.pin(sb.id, kind)) {
			return false
		}
	}
	return true
}

// isNamespace reports whether a namespace is kept at a path.
func isNamespace(path string) bool {
	var at unix.Statfs_t
	return unix.Statfs(path, &at) == nil && at.Type == unix.NSFS_MAGIC
}

// needsPause says why a sandbox needs a pause process; "" if it needs none.
func needsPause(config *runtimeapi.PodSandboxConfig) string {
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	if options.GetPid() == runtimeapi.NamespaceMode_POD {
		return "its containers share a PID namespace, which lasts as long as its first process"
	}
	return ""
}
