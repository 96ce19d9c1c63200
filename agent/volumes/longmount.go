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
// start and fails at a line of 64 KiB. Containers that run keep theirs, because that mount is one
// of their own namespace. ClearMountTable returns the UIDs of the pods, one for each mount.
func (m *Manager) ClearMountTable(ctx context.Context) ([]types.UID, error) {
	podsPath, err := filepath.EvalSymlinks(m.podsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	beneathPods := mountinfo.PrefixFilter(podsPath)
	long, err := mounttable.Mounts(func(info *mountinfo.Info) (skip, stop bool) {
		if info.Root != mounttable.TooLong {
			return true, false
		}
		return beneathPods(info)
	})
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	var uids []types.UID
	var errs []error
	for _, info := range long {
		if err := ctx.Err(); err != nil {
			return uids, err
		}
		if err := m.unmount(info.Mountpoint); err != nil {
			errs = append(errs, err)
			continue
		}
		// A start that is under way must not find an empty directory there.
		if err := os.Remove(info.Mountpoint); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		uid, _, _ := strings.Cut(strings.TrimPrefix(info.Mountpoint, podsPath+"/"), "/")
		uids = append(uids, types.UID(uid))
	}
	return uids, errors.Join(errs...)
}
