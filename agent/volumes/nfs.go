package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/mounttable"
	"github.com/berthd/berth/internal/retry"
)

// nfsHelper mounts NFS exports. Distributions have it in nfs-common or nfs-utils.
const nfsHelper = "mount.nfs"

// helperWait is how long a helper may keep its output open after it was stopped.
const helperWait = 5 * time.Second

// nfsMount is an export to be mounted.
type nfsMount struct {
	// name is the name of the volume or of the PersistentVolume.
	name           string
	server, export string
	readOnly       bool
	options        []string
}

func (n *nfsMount) dir() string { return "volumes/" + pluginNFS + "/" + n.name }

// source is the export as the helper wants it: SERVER:PATH, with an IPv6 address in brackets.
func (n *nfsMount) source() string {
	server := n.server
	if addr, err := netip.ParseAddr(server); err == nil && addr.Is6() {
		server = "[" + server + "]"
	}
	return server + ":" + n.export
}

// nfs mounts an export. The server may be slow, so the mount is made beside the sync.
func (b *bringUp) nfs(n nfsMount) (Mount, bool, error) {
	// A source that begins with a dash would be an option of the helper.
	if strings.HasPrefix(n.server, "-") || n.server == "" || n.export == "" {
		return Mount{}, false, fmt.Errorf("nfs server %q and path %q name no export", n.server, n.export)
	}
	target := filepath.Join(b.path, n.dir())
	// Only the mount table is asked. The server may be away, and would not answer.
	isMounted := func(*bringUp) (bool, error) { return inMountTable(target) }
	err := b.beside(n.dir(), fmt.Sprintf("mounting %s", n.source()), isMounted,
		func(ctx context.Context, b *bringUp) error {
			if err := b.root.MkdirAll(n.dir(), dirMode); err != nil {
				return err
			}
			err := b.m.runHelper(ctx, n.helperArgs(target))
			if err != nil {
				// at worst, an empty directory stays until the pod is removed
				_ = b.root.Remove(n.dir())
			}
			return err
		})
	return Mount{HostPath: target, ReadOnly: n.readOnly}, err == nil, err
}

// helperArgs are the helper's arguments.
func (n *nfsMount) helperArgs(target string) []string {
	options := slices.Clone(n.options)
	if n.readOnly {
		options = append(options, "ro")
	}
	args := []string{n.source(), target}
	if len(options) > 0 {
		args = append(args, "-o", strings.Join(options, ","))
	}
	return args
}

// runHelper runs the helper program until it has mounted, until it fails, or until ctx ends.
func (m *Manager) runHelper(ctx context.Context, args []string) error {
	program, err := findHelper(nfsHelper)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = helperWait
	output, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("mount failed: %w, mounting %s, output: %s", err, args[0],
			firstBytes(strings.TrimSpace(string(output))))
	}
	return nil
}

// maxHelperOutput bounds how much of a helper's output an event has.
const maxHelperOutput = 512

func firstBytes(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxHelperOutput)], "") }

// findHelper finds a helper program of mount(8) by its name: in PATH, or where mount(8) looks.
func findHelper(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/sbin", "/usr/sbin"} {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("nfs volumes need the helper program %s, which is not on this node: install nfs-common "+
		"(Debian, Ubuntu) or nfs-utils", name)
}

// inMountTable reports whether something is mounted on path, without looking at path itself. path
// has no symbolic links below the root directory.
func inMountTable(path string) (bool, error) {
	parent, err := filepath.EvalSymlinks(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	infos, err := mounttable.Mounts(mountinfo.SingleEntryFilter(filepath.Join(parent, filepath.Base(path))))
	if err != nil {
		return false, fmt.Errorf("read mount table: %w", err)
	}
	return len(infos) > 0, nil
}

// isNFS reports whether a file system's type in the mount table is one whose server can delay an
// unmount.
func isNFS(fsType string) bool { return strings.HasPrefix(fsType, "nfs") }

// unmountTimeout is how long the server of an NFS mount may delay an unmount.
const unmountTimeout = 10 * time.Second

// unmountRemote unmounts an NFS mount. If its server does not answer in time, what was not sent to
// the server yet is given up, so that the pod can be removed. The kernel may wait for the server
// even when the mount is out of the tree. Nothing waits for the kernel then: that call ends when
// the server answers or the kernel gives up.
func (m *Manager) unmountRemote(target string) error {
	done := make(chan error, 1)
	go func() { done <- m.deps.Mounter.Unmount(target) }()
	timer := time.NewTimer(unmountTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			err = m.detach(target, err)
		}
		return err
	case <-timer.C:
	}
	m.deps.Logger.Warn("the server of an NFS mount does not answer: what was not written yet is given up",
		"path", target)
	forced := unix.Unmount(target, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if mounted, err := inMountTable(target); err != nil || !mounted {
		return err
	}
	if forced == nil {
		return nil // something else is mounted below what was on top
	}
	return &os.PathError{Op: "force unmount", Path: target, Err: forced}
}

// GiveUp frees processes of a pod that SIGKILL does not end because they wait for the silent server
// of an NFS mount: what they have written and not sent is given up. The mount stays, so that GiveUp
// can be called again. An export that is mounted elsewhere on the node, too, is left alone: the
// kernel would give up what others have written there. GiveUp takes some seconds.
func (m *Manager) GiveUp(ctx context.Context, uid types.UID) error {
	if err := checkName("pod UID", string(uid)); err != nil {
		return err
	}
	podsPath, err := filepath.EvalSymlinks(m.podsDir)
	if err != nil {
		return err
	}
	all, err := mounttable.Mounts(nil)
	if err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	var errs []error
	for _, target := range soleNFS(all, filepath.Join(podsPath, string(uid))) {
		m.deps.Logger.Warn("a container waits for the server of an NFS mount: what was not written yet is given up",
			"path", target)
		errs = append(errs, abort(ctx, target))
	}
	return errors.Join(errs...)
}

// soleNFS returns a mount of each NFS file system that is mounted beneath dir and nowhere else.
func soleNFS(all []*mountinfo.Info, dir string) []string {
	type device struct{ major, minor int }
	skip := map[device]bool{}
	inside := func(mount *mountinfo.Info) bool { return strings.HasPrefix(mount.Mountpoint, dir+"/") }
	for _, mount := range all {
		if !inside(mount) {
			skip[device{mount.Major, mount.Minor}] = true
		}
	}
	var targets []string
	for _, mount := range all {
		of := device{mount.Major, mount.Minor}
		if inside(mount) && isNFS(mount.FSType) && !skip[of] {
			targets = append(targets, mount.Mountpoint)
			skip[of] = true
		}
	}
	return targets
}

// aborts is how often the requests to a server are ended: a process that ends sends one after the
// other, at least one for each file. abortEvery is the time between.
const (
	aborts     = 10
	abortEvery = 500 * time.Millisecond
)

// abort ends what the kernel asks the server of a mount. The handle does not ask the server; it
// keeps the mount busy, so that the kernel does not unmount it.
func abort(ctx context.Context, target string) error {
	fd, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: target, Err: err}
	}
	defer closeFD(fd)
	for range aborts {
		err := unix.Unmount(target, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW)
		if err != nil && !errors.Is(err, unix.EBUSY) {
			return &os.PathError{Op: "abort requests", Path: target, Err: err}
		}
		if !retry.Sleep(ctx, abortEvery) {
			return context.Cause(ctx)
		}
	}
	return nil
}
