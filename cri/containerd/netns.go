package containerd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/internal/classify"
)

const (
	// sharedNetnsDir is where containerd keeps its sandboxes' network namespaces, unless its
	// configuration has netns_mounts_under_state_dir.
	sharedNetnsDir = "/var/run/netns"
	// sharedNetnsAge is how old a namespace in that directory must be to count as forgotten. The
	// namespace may belong to another runtime, and is not in use before its network is set up. This
	// is well above the four minutes that a kubelet gives RunPodSandbox.
	sharedNetnsAge = 10 * time.Minute
)

// netnsName matches the names that containerd gives to network namespaces.
var netnsName = regexp.MustCompile(`^cni-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// findNetns finds the network namespaces that containerd made for a sandbox and then forgot.
// Containerd first makes the namespace and then records in its database which sandbox has it. If
// containerd is killed between the two, nobody knows the namespace any more (seen on 2.4.2). A
// namespace counts as forgotten if it is from an earlier life of this containerd, no sandbox has
// it, no process is in it and nothing in it is up.
func (r *Runtime) findNetns(ctx context.Context, look *leftovers, config criConfig) error {
	dir := config.netnsDir()
	made, err := mountPoints(dir)
	if err != nil {
		return fmt.Errorf("look for network namespaces in %s that containerd has forgotten: %w", dir, err)
	}
	var old []string
	for name, at := range made {
		switch {
		case !netnsName.MatchString(name) || !at.Before(look.life):
		case dir == sharedNetnsDir && time.Since(at) < sharedNetnsAge:
			look.undecided = true
		default:
			old = append(old, filepath.Join(dir, name))
		}
	}
	if len(old) == 0 {
		return nil
	}
	slices.Sort(old)
	look.netns, err = r.unused(ctx, old)
	return err
}

// unused returns those of the network namespaces that no sandbox has, that have no process, and in
// which nothing is up.
func (r *Runtime) unused(ctx context.Context, paths []string) ([]string, error) {
	owned, err := r.sandboxNetns(ctx)
	if err != nil {
		return nil, err
	}
	var inhabited map[uint64]bool
	var out []string
	for _, path := range paths {
		if owned[filepath.Base(path)] {
			continue
		}
		if inhabited == nil {
			if inhabited, err = inhabitedNetns(); err != nil {
				return nil, err
			}
		}
		idle, err := idleNetns(path, inhabited)
		if err != nil {
			return nil, fmt.Errorf("look into the network namespace %s: %w", path, err)
		}
		if idle {
			out = append(out, path)
		}
	}
	return out, nil
}

// sandboxNetns returns the names of the sandboxes' network namespaces. A sandbox that is removed
// during the call has none.
func (r *Runtime) sandboxNetns(ctx context.Context) (map[string]bool, error) {
	sandboxes, err := r.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, sb := range sandboxes {
		status, err := r.verboseStatus(ctx, sb.Id)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var info struct {
			RuntimeSpec struct {
				Linux struct {
					Namespaces []struct {
						Path string `json:"path"`
					} `json:"namespaces"`
				} `json:"linux"`
			} `json:"runtimeSpec"`
			Metadata struct{ NetNSPath string } `json:"sandboxMetadata"`
		}
		if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
			return nil, fmt.Errorf("read what the runtime says of sandbox %s: %w", sb.Id, err)
		}
		out[filepath.Base(info.Metadata.NetNSPath)] = true
		for _, ns := range info.RuntimeSpec.Linux.Namespaces {
			out[filepath.Base(ns.Path)] = true
		}
	}
	return out, nil
}

// verboseStatus returns a sandbox's status with containerd's own information about the sandbox.
func (r *Runtime) verboseStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.RequestTimeout)
		defer cancel()
	}
	const operation = "podsandbox_status"
	start := time.Now()
	client := runtimeapi.NewRuntimeServiceClient(r.conn)
	resp, err := client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	err = classify.Error(operation, err)
	r.cfg.Observe(operation, time.Since(start), err)
	return resp, err
}

// mountPoints returns the names in a directory and when each was made. A mount on a name hides the
// name's own times. So mountPoints looks at a copy of the file system without the mounts in it
// (open_tree(2), Linux 5.2; on an older kernel it returns none).
func mountPoints(dir string) (map[string]time.Time, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	tree := os.NewFile(uintptr(fd), dir)
	defer func() { _ = tree.Close() }()
	entries, err := os.ReadDir(proc(os.Getpid(), "fd/"+strconv.Itoa(fd)))
	if err != nil {
		return nil, err
	}
	out := map[string]time.Time{}
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[e.Name()] = info.ModTime()
	}
	return out, nil
}

// inhabitedNetns returns the inodes of the network namespaces that have a process.
func inhabitedNetns() (map[uint64]bool, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for the processes of network namespaces: %w", err)
	}
	out := map[uint64]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(proc(pid, "ns/net"), &st) == nil {
			out[st.Ino] = true
		}
	}
	return out, nil
}

// idleNetns reports whether the network namespace has no process and nothing in it is up, or
// whether the path is only the empty file on which one was going to be mounted.
func idleNetns(path string, inhabited map[uint64]bool) (bool, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return false, ignoreGone(err)
	}
	var file unix.Statfs_t
	if err := unix.Statfs(path, &file); err != nil {
		return false, ignoreGone(err)
	}
	if file.Type != unix.NSFS_MAGIC {
		return st.Mode&unix.S_IFMT == unix.S_IFREG && st.Size == 0, nil
	}
	if inhabited[st.Ino] {
		return false, nil
	}
	up, err := linksUp(path)
	return up == 0, err
}

// linksUp returns how many links of the network namespace are up.
func linksUp(path string) (up int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = insideNetns(path, func() error {
			links, err := net.Interfaces()
			for _, l := range links {
				if l.Flags&net.FlagUp != 0 {
					up++
				}
			}
			return err
		})
	}()
	<-done
	return up, err
}

// insideNetns calls do in a network namespace, and then returns to its own. If a thread cannot
// return, it stays locked, and ends with its goroutine.
func insideNetns(path string, do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { _ = home.Close() }()
	ns, err := os.Open(path)
	if err == nil {
		defer func() { _ = ns.Close() }()
		err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("go back to the own network namespace: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

// unmountNetns unmounts a network namespace, which ends if nothing else holds it.
func unmountNetns(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not a mount
		return ignoreGone(err)
	}
	return ignoreGone(os.Remove(path))
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func proc(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }
