package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// removePodsTimeout bounds the orderly removal of pods. What is left then is removed by force.
const removePodsTimeout = 30 * time.Second

// killTimeout bounds the end of processes that were killed. On a busy machine this may take long.
const killTimeout = time.Minute

// removePods stops and removes every sandbox through the CRI, so that the CNI plugins take down the
// networks. It ignores errors, because what is left is removed afterwards.
func (e *Env) removePods() {
	ctx, cancel := context.WithTimeout(context.Background(), removePodsTimeout)
	defer cancel()
	list, err := e.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return
	}
	var wg sync.WaitGroup
	limit := make(chan struct{}, 8)
	for _, s := range list.Items {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			_, _ = e.Runtime().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.Id})
			_, _ = e.Runtime().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		})
	}
	wg.Wait()
}

// remove removes everything that the environment, its pods and its agents can have made, in any
// state. It ends processes first, then frees what the processes held, then removes the files. It
// also works if nothing was ever made.
func (l Layout) remove() error {
	var errs []error
	step := func(err error) { errs = append(errs, err) }
	step(killAll("agent", l.agentProcesses))
	step(killAll("containerd", l.containerds))
	step(killAll("shim", l.shims))
	step(killAll("keeper of pipes", l.keepers))
	step(l.removeContainers())
	step(l.removeCgroups())
	step(l.unmount())
	step(l.removeLinks())
	step(l.removeShimSockets())
	step(l.removeResults())
	if err := errors.Join(errs...); err != nil {
		// The record of what could not be freed stays, so that the next owner of the slot tries
		// again.
		return err
	}
	return removeTree(l.Dir)
}

// shims returns the shims that report to this environment's containerd.
func (l Layout) shims() []running {
	return processes(func(args []string) bool {
		return strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") && slices.Contains(args, l.socket())
	})
}

func (l Layout) containerds() []running {
	return processes(func(args []string) bool {
		return filepath.Base(args[0]) == "containerd" && slices.Contains(args, l.config())
	})
}

// agentProcesses returns the agents whose config is in this environment's folder.
func (l Layout) agentProcesses() []running {
	return processes(func(args []string) bool {
		i := slices.Index(args, "--config")
		return i > 0 && i+1 < len(args) && filepath.Base(args[i+1]) == agentConfigFile &&
			strings.HasPrefix(args[i+1], l.Dir+"/")
	})
}

// keepers returns the processes that keep the pipes of the native runtime's containers open. They
// outlive everything else: each waits for a byte from a pipe in this environment's folder.
func (l Layout) keepers() []running {
	waiting := processes(func(args []string) bool { return slices.Equal(args, []string{"head", "-c", "1"}) })
	return slices.DeleteFunc(waiting, func(p running) bool {
		from, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", p.pid))
		return err != nil || !strings.HasPrefix(from, l.Dir+"/")
	})
}

// removeContainers kills the containers that runc still has, and removes their cgroups.
func (l Layout) removeContainers() error {
	containers, _ := filepath.Glob(filepath.Join(l.runcRoot(), "*", "*"))
	var errs []error
	for _, dir := range containers {
		ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
		errs = append(errs, run(ctx, "runc", "--root", filepath.Dir(dir), "delete", "--force", filepath.Base(dir)))
		cancel()
	}
	return errors.Join(errs...)
}

// removeCgroups kills what is left in this environment's cgroups and removes them, in every
// hierarchy.
func (l Layout) removeCgroups() error {
	var errs []error
	for _, root := range l.cgroupRoots() {
		dirs := cgroupsBelow(root)
		slices.Reverse(dirs)
		for _, dir := range dirs {
			errs = append(errs, removeCgroup(dir))
		}
	}
	return errors.Join(errs...)
}

// removeCgroup kills the members of one cgroup without children and removes the cgroup. It tries
// for at most [killTimeout].
func removeCgroup(dir string) error {
	deadline := time.Now().Add(killTimeout)
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		members, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, field := range strings.Fields(string(members)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(pollInterval)
	}
}

// cgroupRoots returns the environment's cgroup root in every hierarchy where it exists.
func (l Layout) cgroupRoots() []string {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil
	}
	var roots []string
	for _, m := range mounts {
		// The second folder is the name under systemd's driver.
		for _, dir := range []string{
			filepath.Join(m.Mountpoint, l.CgroupRoot), filepath.Join(m.Mountpoint, l.CgroupRoot+".slice"),
		} {
			if _, err := os.Stat(dir); err == nil {
				roots = append(roots, dir)
			}
		}
	}
	return roots
}

// cgroupsBelow returns a cgroup and all below it, parents first.
func cgroupsBelow(root string) []string {
	var dirs []string
	_ = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, p)
		}
		return nil
	})
	return dirs
}

// unmount detaches every mount below this environment's folder, the deepest first.
func (l Layout) unmount() error {
	mounts, err := l.mounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", m, err))
		}
	}
	return errors.Join(errs...)
}

// mounts returns the mount points below this environment's folder, parents first.
func (l Layout) mounts() ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(l.Dir))
	if err != nil {
		return nil, fmt.Errorf("list mounts: %w", err)
	}
	var points []string
	for _, m := range infos {
		points = append(points, m.Mountpoint)
	}
	return points, nil
}

// removeLinks deletes the pods' interfaces on the node and the bridge.
func (l Layout) removeLinks() error {
	ports, bridge, err := l.links()
	if err != nil {
		return err
	}
	if bridge != nil {
		ports = append(ports, bridge)
	}
	var errs []error
	for _, link := range ports {
		var gone netlink.LinkNotFoundError
		if err := netlink.LinkDel(link); err != nil && !errors.As(err, &gone) && !errors.Is(err, unix.ENODEV) &&
			!errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("delete interface %s: %w", link.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// listTries is how often the interfaces are listed again because some of them changed meanwhile.
const listTries = 20

// links returns the bridge, nil if there is none, and the bridge's ports.
func (l Layout) links() (ports []netlink.Link, bridge netlink.Link, err error) {
	err = l.In(func() error {
		ports, bridge, err = l.linksHere()
		return err
	})
	return ports, bridge, err
}

func (l Layout) linksHere() (ports []netlink.Link, bridge netlink.Link, err error) {
	all, err := netlink.LinkList()
	for range listTries {
		// other interfaces change while the kernel lists
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
		all, err = netlink.LinkList()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range all {
		if link.Attrs().Name == l.Bridge {
			bridge = link
		}
	}
	if bridge == nil {
		return nil, nil, nil
	}
	for _, link := range all {
		if link.Attrs().MasterIndex == bridge.Attrs().Index {
			ports = append(ports, link)
		}
	}
	return ports, bridge, nil
}

// removeShimSockets removes the sockets that killed shims left outside this environment's folder.
// The shims' bundles have the paths of the sockets.
func (l Layout) removeShimSockets() error {
	bundles, _ := filepath.Glob(l.shimBundles())
	var errs []error
	for _, bundle := range bundles {
		for _, socket := range shimSockets(bundle) {
			if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("remove the shim socket of %s: %w", bundle, err))
			}
		}
	}
	return errors.Join(errs...)
}

func shimSockets(bundle string) []string {
	var sockets []string
	if b, err := os.ReadFile(filepath.Join(bundle, "address")); err == nil {
		sockets = append(sockets, string(b))
	}
	var bootstrap struct {
		Address string `json:"address"`
	}
	if b, err := os.ReadFile(filepath.Join(bundle, "bootstrap.json")); err == nil &&
		json.Unmarshal(b, &bootstrap) == nil {
		sockets = append(sockets, bootstrap.Address)
	}
	for i, s := range sockets {
		sockets[i] = strings.TrimPrefix(strings.TrimSpace(s), "unix://")
	}
	return slices.DeleteFunc(sockets, func(s string) bool { return !filepath.IsAbs(s) })
}

// removeResults removes the CNI library's results for pods that no plugin took down. The results
// are outside this environment's folder: those of our network, and those of the loopback, whose
// names contain the sandbox's id.
func (l Layout) removeResults() error {
	patterns := []string{l.cniCache()}
	bundles, _ := filepath.Glob(l.shimBundles())
	for _, bundle := range bundles {
		patterns = append(patterns, filepath.Join(cniResults, "cni-loopback-"+filepath.Base(bundle)+"-*"))
	}
	var errs []error
	for _, pattern := range patterns {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// removeTree removes a folder, but only if nothing is mounted in it. A CNI plugin or a runc that
// outlived its containerd for a moment may still write there, so it tries for at most
// [killTimeout].
func removeTree(dir string) error {
	deadline := time.Now().Add(killTimeout)
	for {
		mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
		if err != nil {
			return fmt.Errorf("list mounts below %s: %w", dir, err)
		}
		if len(mounts) > 0 {
			return fmt.Errorf("remove %s: %s is still mounted", dir, mounts[0].Mountpoint)
		}
		err = os.RemoveAll(dir)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) || time.Now().After(deadline) {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		time.Sleep(pollInterval)
	}
}
