package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/mounttable"
	"github.com/berthd/berth/internal/thread"
)

// errTooDeep is why a directory that lies too deep in its volume is not mounted.
var errTooDeep = errors.New("its path in the volume is longer than a path may be")

// checkDepth refuses an open file whose path is longer than paths may be (PATH_MAX): symbolic links
// can lead to one. Runtimes cannot read a mount table that has it. That counts on an NFS server,
// too, see [mounttable.Mounts].
func checkDepth(file int) error {
	path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file))
	if errors.Is(err, unix.ENAMETOOLONG) {
		return errTooDeep
	}
	if err != nil || !hasNoDevice(file) {
		return err
	}
	of, err := mounttable.Of(path)
	if err != nil {
		return fmt.Errorf("look where %s is: %w", path, err)
	}
	if isTooLongOn(of, path) {
		return errTooDeep
	}
	return nil
}

// isTooLongOn reports whether the name that the kernel has for a path on an NFS mount is longer
// than a page.
func isTooLongOn(mount *mountinfo.Info, path string) bool {
	return isNFS(mount.FSType) && len(mount.Source)+len(path)-len(mount.Mountpoint) >= unix.PathMax
}

// ClearMountTable unmounts the subPaths whose directories a container has since moved so deep into
// its volume that runtimes cannot read the node's mount table any more: runc reads it for each
// start and fails at a line of 64 KiB. Where the volume is one of NFS, nobody can read the table,
// see [mounttable.Mounts], and its directory can be that of another pod's volume. Containers that
// run keep theirs, because that mount is one of their own namespace. ClearMountTable returns the
// UIDs of the pods, one for each mount.
func (m *Manager) ClearMountTable(ctx context.Context) ([]types.UID, error) {
	podsPath, err := filepath.EvalSymlinks(m.podsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := clearing{m: m, podsPath: podsPath, table: mounttable.Mounts}
	err = c.run(ctx)
	return c.uids, err
}

// clearing is one [Manager.ClearMountTable]. Tests replace the kernel's table, which is that of the
// thread.
type clearing struct {
	m        *Manager
	podsPath string
	table    func() ([]*mountinfo.Info, error)

	uids []types.UID
}

func (c *clearing) run(ctx context.Context) error {
	mounts, err := c.readable(ctx)
	if err != nil {
		return fmt.Errorf("read mount table: %w", err)
	}
	var errs []error
	for _, info := range mounts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if info.Root == mounttable.TooLong && strings.HasPrefix(info.Mountpoint, c.podsPath+"/") {
			errs = append(errs, c.clear(info.Mountpoint, c.m.unmount))
		}
	}
	return errors.Join(errs...)
}

// readable returns the mount table, and unmounts what keeps the kernel from writing it.
func (c *clearing) readable(ctx context.Context) ([]*mountinfo.Info, error) {
	mounts, err := c.table()
	if !errors.Is(err, unix.ENAMETOOLONG) {
		return mounts, err
	}
	targets := c.mountedPaths()
	if ends, err := c.endsWith(ctx, targets, nil); err != nil || ends {
		return nil, errors.Join(unix.ENAMETOOLONG, err) // it is not one of these
	}
	ends, err := c.find(ctx, targets, targets)
	for _, target := range ends {
		if !strings.HasPrefix(target, c.podsPath+"/") { // a CSI driver has staged it
			err = errors.Join(err, fmt.Errorf("the directory that is mounted on %s was moved too deep: unmount it", target))
			continue
		}
		err = errors.Join(err, c.clear(target, c.m.unmountUnnamed))
	}
	if err != nil {
		return nil, err
	}
	return c.table()
}

// confirmations is how often a mount must be the one at which the table ends, and the table be
// readable without it: whoever moved its directory can move it back and forth meanwhile, so that
// others are suspected.
const confirmations = 8

// find returns which of some targets are mounts at which the kernel ends the table, by halves.
// Nothing says it (before statmount(2) of Linux 6.8).
func (c *clearing) find(ctx context.Context, targets, some []string) (found []string, err error) {
	if ends, err := c.endsWith(ctx, targets, some); err != nil || !ends {
		return nil, err
	}
	if len(some) > 1 {
		half := len(some) / 2
		first, err := c.find(ctx, targets, some[:half])
		if err != nil {
			return nil, err
		}
		second, err := c.find(ctx, targets, some[half:])
		return append(first, second...), err
	}
	for range confirmations {
		for _, with := range [][]string{nil, some} {
			if ends, err := c.endsWith(ctx, targets, with); err != nil || ends != (with != nil) {
				return nil, err
			}
		}
	}
	return some, nil
}

// endsWith reports whether the kernel ends the table where only some of the targets are mounted. It
// tries that in a copy of the mount namespace, which harms nobody and asks no server: an unmount
// does not look at what is mounted (LOOKUP_MOUNTPOINT in fs/namei.c), and the node has it still.
func (c *clearing) endsWith(ctx context.Context, targets, some []string) (ends bool, err error) {
	stays := map[string]bool{}
	for _, target := range some {
		stays[target] = true
	}
	err = thread.Own(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return &os.PathError{Op: "mount as private", Path: "/", Err: err}
		}
		for _, target := range targets {
			for !stays[target] && unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
			}
		}
		_, err := c.table()
		if errors.Is(err, unix.ENAMETOOLONG) {
			ends, err = true, nil
		}
		return err
	})
	return ends, err
}

// mountedPaths returns where something of the NFS servers of pods can be mounted. It reads the
// directories in which mounts are, and none that may be a mount itself.
func (c *clearing) mountedPaths() (paths []string) {
	staged := filepath.Join(c.m.cfg.RootDir, "plugins", "kubernetes.io", "csi")
	for _, places := range []struct{ dir, pattern string }{
		{c.podsPath, "*/" + subPathsDir + "/*/*/*"},
		{c.podsPath, "*/volumes/*/*"},
		{c.podsPath, "*/volumes/" + pluginCSI + "/*/mount"},
		{staged, "*/*/globalmount"},
	} {
		found, _ := fs.Glob(os.DirFS(places.dir), places.pattern) // only a wrong pattern is an error
		for _, path := range found {
			paths = append(paths, filepath.Join(places.dir, path))
		}
	}
	return paths
}

// clear unmounts what a pod has mounted at target by unmount.
func (c *clearing) clear(target string, unmount func(string) error) error {
	if err := unmount(target); err != nil {
		return err
	}
	uid, below, _ := strings.Cut(strings.TrimPrefix(target, c.podsPath+"/"), "/")
	c.uids = append(c.uids, types.UID(uid))
	if !strings.HasPrefix(below, subPathsDir+"/") {
		return nil
	}
	// A start that is under way must not find an empty directory there.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unmountUnnamed unmounts or detaches what the mount table does not name, and so nobody can say
// what is mounted in it.
func (m *Manager) unmountUnnamed(target string) error {
	const server = "" // nobody can say that, either
	return inTime(func() error {
		err := m.apart(server, apartUnmount, target)
		if errors.Is(err, unix.EBUSY) {
			err = m.apart(server, apartDetach, target)
		}
		return err
	})
}
