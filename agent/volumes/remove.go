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
	"time"

	"github.com/moby/sys/mountinfo"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/beneath"
	"github.com/berthd/berth/internal/mounttable"
	"github.com/berthd/berth/internal/silent"
)

// Remove unmounts everything beneath the pod's directory and deletes the directory. It needs no
// knowledge of the pod, works after any crash, and succeeds if nothing is there. The pod's
// containers must have ended. It waits for what [Manager.Release] has not done.
//
// While something stays mounted beneath the directory, nothing in it is deleted and the error is
// [ErrMounted]. The deletion itself does not cross mount points either, even one that appears while
// it runs, and follows no symbolic link. After an error, the next call goes on where the last call
// ended.
func (m *Manager) Remove(ctx context.Context, uid types.UID) error {
	begun := time.Now()
	err := m.remove(ctx, uid)
	m.measured.down(uid, time.Since(begun), err)
	if err != nil {
		return fmt.Errorf("remove directory of pod %s: %w", uid, err)
	}
	return nil
}

func (m *Manager) remove(ctx context.Context, uid types.UID) error {
	if err := checkName("pod UID", string(uid)); err != nil {
		return err
	}
	pods, err := os.Open(m.podsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer pods.Close()
	if err := m.Release(ctx, uid, nil); err != nil {
		return err
	}
	if err := m.unmapLocal(uid); err != nil {
		return err
	}
	// The mount table has only paths without symbolic links.
	podsPath, err := filepath.EvalSymlinks(m.podsDir)
	if err != nil {
		return err
	}
	if err := m.unmountAll(ctx, filepath.Join(podsPath, string(uid))); err != nil {
		return err
	}
	return beneath.Remove(ctx, int(pods.Fd()), string(uid))
}

// RemoveDir deletes the directory at path, an absolute path, with all that is in it. It follows no
// symbolic link beneath path's parent and crosses no mount point: there it ends with [ErrMounted].
// It succeeds if the directory does not exist.
func RemoveDir(ctx context.Context, path string) error {
	parent, err := os.Open(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	return beneath.Remove(ctx, int(parent.Fd()), filepath.Base(path))
}

// unmountRounds bounds how often the mount table is read again because something was mounted
// meanwhile.
const unmountRounds = 3

// unmountAll unmounts everything that is mounted on dir or beneath it, the innermost and the latest
// mount first. A busy mount is detached: the kernel removes it once nobody uses it, and nothing can
// be reached through it any more. Nothing is unmounted outside of dir, see [loosen].
func (m *Manager) unmountAll(ctx context.Context, dir string) error {
	var errs []error
	for range unmountRounds {
		mounts, err := sortedMounts(dir)
		if err != nil {
			return fmt.Errorf("read mount table: %w", err)
		}
		if len(mounts) == 0 {
			return nil
		}
		if err := loosen(dir); err != nil {
			return err
		}
		errs = nil
		for _, mount := range outsideNFS(mounts, dir) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if isNFS(mount.FSType) {
				errs = append(errs, m.unmountRemote(silent.ServerOfNFS(mount), mount.Mountpoint))
			} else {
				errs = append(errs, m.unmount(mount.Mountpoint))
			}
		}
	}
	mounts, err := mountsBeneath(dir)
	if err != nil || len(mounts) == 0 {
		return err
	}
	return errors.Join(append(errs, fmt.Errorf("%s: %w", strings.Join(mounts, ", "), ErrMounted))...)
}

// unmount unmounts what is mounted on target, or detaches it.
func (m *Manager) unmount(target string) error {
	err := m.deps.Mounter.Unmount(target)
	if err == nil {
		return nil
	}
	detach := KernelMounter{}.Detach
	if own, ok := m.deps.Mounter.(detacher); ok {
		detach = own.Detach
	}
	return m.detach(target, err, detach)
}

// detach takes a mount that could not be unmounted, for err, out of the tree.
func (m *Manager) detach(target string, err error, detach func(target string) error) error {
	parent, lost := filepath.EvalSymlinks(filepath.Dir(target))
	if lost == nil {
		lost = loosen(filepath.Join(parent, filepath.Base(target))) // what is mounted on it goes, too
	}
	if lost != nil || detach(target) != nil {
		return err
	}
	m.deps.Logger.Warn("detached a mount that could not be unmounted", "path", target, "error", err)
	return nil
}

// mountsBeneath returns the mount points on dir and beneath it, in the order in which they can be
// unmounted. A path with several mounts is there as often.
func mountsBeneath(dir string) ([]string, error) {
	infos, err := sortedMounts(dir)
	paths := make([]string, len(infos))
	for i, info := range infos {
		paths[i] = info.Mountpoint
	}
	return paths, err
}

// sortedMounts is mountsBeneath with all that the kernel's mount table has.
func sortedMounts(dir string) ([]*mountinfo.Info, error) {
	infos, err := mounttable.Beneath(dir)
	slices.SortFunc(infos, func(a, b *mountinfo.Info) int {
		return strings.Count(b.Mountpoint, "/") - strings.Count(a.Mountpoint, "/")
	})
	return infos, err
}
