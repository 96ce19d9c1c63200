package volumes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/mounttable"
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
// see [mounttable.Mounts]. Containers that run keep theirs, because that mount is one of their own
// namespace. ClearMountTable returns the UIDs of the pods, one for each mount.
func (m *Manager) ClearMountTable(ctx context.Context) ([]types.UID, error) {
	podsPath, err := filepath.EvalSymlinks(m.podsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := clearing{podsPath: podsPath, table: mounttable.Mounts, unmount: m.unmount, off: m.unmountAlone}
	err = c.run(ctx)
	return c.uids, err
}

// clearing is one [Manager.ClearMountTable]. Tests replace the kernel's table.
type clearing struct {
	podsPath string
	table    func(mountinfo.FilterFunc) ([]*mountinfo.Info, error)
	// unmount unmounts, and off does so without the table.
	unmount, off func(target string) error

	uids []types.UID
}

func (c *clearing) run(ctx context.Context) error {
	beneathPods := mountinfo.PrefixFilter(c.podsPath)
	mounts, err := c.table(beneathPods)
	var errs []error
	if errors.Is(err, unix.ENAMETOOLONG) {
		mounts, err = c.open(ctx, mounts, &errs)
	}
	if err != nil {
		return errors.Join(append(errs, fmt.Errorf("read mount table: %w", err))...)
	}
	for _, info := range mounts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if info.Root == mounttable.TooLong {
			errs = append(errs, c.clear(info.Mountpoint, c.unmount))
		}
	}
	return errors.Join(errs...)
}

// open unmounts subPaths until the table can be read, and returns it. The mounts before the one
// where the kernel ends are listed. The table is in the order in which mounts were made, and so
// that one is mostly the first subPath that is not among them.
func (c *clearing) open(
	ctx context.Context, listed []*mountinfo.Info, errs *[]error,
) (mounts []*mountinfo.Info, err error) {
	hidden, err := c.hidden(listed)
	if err != nil {
		return nil, err
	}
	err = unix.ENAMETOOLONG
	for _, target := range hidden {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		*errs = append(*errs, c.clear(target, c.off))
		if mounts, err = c.table(mountinfo.PrefixFilter(c.podsPath)); !errors.Is(err, unix.ENAMETOOLONG) {
			break
		}
	}
	return mounts, err
}

// hidden returns the mounted subPaths of pods that are not listed, in the order in which they were
// mounted. No server is asked.
func (c *clearing) hidden(listed []*mountinfo.Info) ([]string, error) {
	paths, err := fs.Glob(os.DirFS(c.podsPath), "*/"+subPathsDir+"/*/*/*")
	if err != nil {
		return nil, err
	}
	points := map[string]bool{}
	for _, info := range listed {
		points[info.Mountpoint] = true
	}
	ids := map[string]uint64{}
	for _, path := range paths {
		path = filepath.Join(c.podsPath, path)
		var stat unix.Statx_t
		// Linux before 6.8 knows only IDs that are used again.
		const id = unix.STATX_MNT_ID | unix.STATX_MNT_ID_UNIQUE
		err := unix.Statx(unix.AT_FDCWD, path, known, unix.STATX_TYPE|id, &stat)
		if err == nil && stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 && !points[path] {
			ids[path] = stat.Mnt_id
		}
	}
	return slices.SortedFunc(maps.Keys(ids), func(a, b string) int { return cmp.Compare(ids[a], ids[b]) }), nil
}

// clear unmounts a subPath by unmount.
func (c *clearing) clear(target string, unmount func(string) error) error {
	if err := unmount(target); err != nil {
		return err
	}
	uid, _, _ := strings.Cut(strings.TrimPrefix(target, c.podsPath+"/"), "/")
	c.uids = append(c.uids, types.UID(uid))
	// A start that is under way must not find an empty directory there.
	if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// unmountAlone unmounts or detaches without a look at the mount table.
func (m *Manager) unmountAlone(target string) error {
	err := m.deps.Mounter.Unmount(target)
	if err != nil && (KernelMounter{}).Detach(target) == nil {
		return nil
	}
	return err
}
