package volumes

import (
	"bytes"
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
	"sync/atomic"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/berthd/berth/internal/mounttable"
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
	err := b.beside(work{
		key: n.dir(), doing: "mounting " + n.source(), isDone: isMounted,
		// Each helper takes a thread of the agent for as long as its server does not answer, and a pod
		// may have any number of volumes.
		turn: func(ctx context.Context) (leave func(), err error) {
			return b.m.helpers.Enter(ctx, strings.ToLower(n.server), b.pod.Namespace)
		},
		do: func(ctx context.Context, b *bringUp) error {
			if err := b.root.MkdirAll(n.dir(), dirMode); err != nil {
				return err
			}
			err := runHelper(ctx, n.helperArgs(target))
			if err != nil {
				// at worst, an empty directory stays until the pod is removed
				_ = b.root.Remove(n.dir())
			}
			return err
		},
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
func runHelper(ctx context.Context, args []string) error {
	program, err := findHelper(nfsHelper)
	if err != nil {
		return err
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay, cmd.Stdout, cmd.Stderr = helperWait, &output, &output
	if err = cmd.Start(); err == nil {
		// It is not worth what the agent is when memory runs out. It may have ended already.
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", cmd.Process.Pid), []byte("0"), 0)
		err = cmd.Wait()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("mount failed: %w, mounting %s, output: %s", err, args[0],
			firstBytes(strings.TrimSpace(output.String())))
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
	infos, err := mounttable.On(filepath.Join(parent, filepath.Base(path)))
	if err != nil {
		return false, fmt.Errorf("read mount table: %w", err)
	}
	return len(infos) > 0, nil
}

// isNFS reports whether a file system's type in the mount table is one whose server can delay an
// unmount.
func isNFS(fsType string) bool { return strings.HasPrefix(fsType, "nfs") }

// unmountTimeout is how long the server of an NFS mount may delay each step of an unmount.
const unmountTimeout = 10 * time.Second

// unmountRemote unmounts an NFS mount of a server. If its server does not answer in time while the
// mount is busy, what was not sent to the server yet is given up, so that the pod can be removed,
// unless something else has the same export mounted. Once the mount is out of the tree nothing is
// given up: the kernel may wait for the server, and the agent does not.
func (m *Manager) unmountRemote(server, target string) error {
	var late atomic.Bool
	err := inTime(func() error {
		err := m.apart(server, apartUnmount, target)
		if err == nil {
			return nil
		}
		// A handle that waits for a silent server keeps the mount busy, and once it is detached nothing
		// but the server can end that. Where no force may be used, nothing is won by waiting.
		if mountedOnce(target) {
			_ = m.apart(server, apartAsk, target) // an error is an answer, too
		}
		if late.Load() {
			return err
		}
		return m.detach(target, err, func(target string) error { return m.apart(server, apartDetach, target) })
	})
	if !errors.Is(err, errLate) {
		return err
	}
	late.Store(true)
	step, unsent := apartDetach, "waits for it in the kernel"
	if mountedOnce(target) {
		step, unsent = apartAbort, "is given up"
	}
	m.deps.Logger.Warn("the server of an NFS mount does not answer: what was not written yet "+unsent, "path", target)
	err = inTime(func() error { return m.apart(server, step, target) })
	if mounted, lost := inMountTable(target); lost != nil || !mounted {
		return lost
	}
	return err // nil if something else is mounted below what was on top
}

// errLate is the error of what does not end in time.
var errLate = errors.New("the server of an NFS mount does not answer")

// inTime returns f's error, or errLate after [unmountTimeout]. f may last longer.
func inTime(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	timer := time.NewTimer(unmountTimeout)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errLate
	}
}

// mountedOnce reports whether the file system that is mounted on target is mounted nowhere else.
func mountedOnce(target string) bool {
	all, err := mounttable.Mounts()
	return err == nil && slices.Contains(soleNFS(all, filepath.Dir(target)), target)
}

// soleNFS returns a mount of each NFS file system that is mounted beneath dir and nowhere else. It
// returns none that lies in another one, whose server would decide where the path leads to, and
// none on or under another one with the same path, which leads to the upper one.
func soleNFS(all []*mountinfo.Info, dir string) []string {
	type device struct{ major, minor int }
	skip, on := map[device]bool{}, map[string]int{}
	inside := func(mount *mountinfo.Info) bool { return strings.HasPrefix(mount.Mountpoint, dir+"/") }
	for _, mount := range all {
		on[mount.Mountpoint]++
		if !inside(mount) {
			skip[device{mount.Major, mount.Minor}] = true
		}
	}
	var targets []string
	for _, mount := range outsideNFS(all, dir) {
		of := device{mount.Major, mount.Minor}
		if inside(mount) && isNFS(mount.FSType) && !skip[of] && on[mount.Mountpoint] == 1 {
			targets = append(targets, mount.Mountpoint)
			skip[of] = true
		}
	}
	return targets
}

// outsideNFS returns the mounts that lie in no NFS mount beneath dir. The others are never named by
// their paths: whoever runs the server decides, at each look, where a path in its volume leads to.
// They go with the mount that they are on.
func outsideNFS(mounts []*mountinfo.Info, dir string) []*mountinfo.Info {
	remote := map[string]bool{}
	for _, mount := range mounts {
		if isNFS(mount.FSType) && strings.HasPrefix(mount.Mountpoint, dir+"/") {
			remote[mount.Mountpoint] = true
		}
	}
	var out []*mountinfo.Info
	for _, mount := range mounts {
		if !liesIn(mount.Mountpoint, remote) {
			out = append(out, mount)
		}
	}
	return out
}
