package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
// can lead to one. Runtimes cannot read a mount table that has it.
func checkDepth(file int) error {
	_, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file))
	if errors.Is(err, unix.ENAMETOOLONG) {
		return errTooDeep
	}
	return err
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
	table    func(mountinfo.FilterFunc) ([]*mountinfo.Info, error)

	uids []types.UID
}

func (c *clearing) run(ctx context.Context) error {
	var errs []error
	mounts, err := c.table(nil)
	for errors.Is(err, unix.ENAMETOOLONG) {
		var ends []string
		err = thread.Own(func() (err error) {
			ends, err = c.ends(ctx)
			return err
		})
		if err != nil {
			break
		}
		for _, target := range ends {
			if err = c.clear(target, c.m.unmountUnnamed); err != nil {
				break
			}
		}
		if err == nil {
			mounts, err = c.table(nil)
		}
	}
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("read mount table: %w", err))...)
	}
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

// ends returns mounts of pods at which the kernel ends the table, one at least. Nothing says which
// they are (before statmount(2) of Linux 6.8), and so ends tries: it unmounts one mount after the
// other in a copy of the mount namespace, until the table can be read there, and returns those
// after which the table went on. It changes its thread's namespace. No server is asked: an unmount
// does not look at what is mounted (LOOKUP_MOUNTPOINT in fs/namei.c), and drops nothing that the
// node does not have.
func (c *clearing) ends(ctx context.Context) (found []string, err error) {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return nil, os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, &os.PathError{Op: "mount as private", Path: "/", Err: err}
	}
	written, err := c.table(nil)
	for _, target := range c.mountedPaths() {
		if !errors.Is(err, unix.ENAMETOOLONG) {
			return found, err
		}
		if ctx.Err() != nil {
			return found, ctx.Err()
		}
		isWritten := slices.ContainsFunc(written, func(m *mountinfo.Info) bool { return m.Mountpoint == target })
		if isWritten || unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) != nil {
			continue
		}
		var more []*mountinfo.Info
		if more, err = c.table(nil); err == nil || len(more) > len(written) {
			found = append(found, target)
		}
		written = more
	}
	if err == nil && len(found) == 0 {
		err = errors.New("the mount that nobody could read is gone already")
	}
	return found, err
}

// mountedPaths returns where pods can have directories of other file systems mounted.
func (c *clearing) mountedPaths() (paths []string) {
	for _, pattern := range []string{
		subPathsDir + "/*/*/*", "volumes/" + pluginNFS + "/*", "volumes/" + pluginCSI + "/*/mount",
	} {
		found, _ := fs.Glob(os.DirFS(c.podsPath), "*/"+pattern) // only a wrong pattern is an error
		for _, path := range found {
			paths = append(paths, filepath.Join(c.podsPath, path))
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
