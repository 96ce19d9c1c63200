package volumes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
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
	return removeTree(ctx, int(pods.Fd()), string(uid))
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
	return removeTree(ctx, int(parent.Fd()), filepath.Base(path))
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

const (
	// maxDepth bounds how deep a deletion descends, and so how many files it holds open. Containers
	// can nest directories much deeper.
	maxDepth = 64
	// batch is how many names of a directory are read at once.
	batch = 512
	// maxSweeps bounds how often a directory that should be empty is read again.
	maxSweeps = 16
)

// removeTree deletes name in the open directory parent: a file, a link or a whole tree. It follows
// no symbolic link. At the first mount point it ends with [ErrMounted], and touches nothing there.
// It succeeds if the name does not exist.
func removeTree(ctx context.Context, parent int, name string) error {
	r := &remover{ctx: ctx, top: parent, topName: name}
	return r.remove(parent, name, name, 0)
}

// remover is one deletion of a tree.
type remover struct {
	ctx context.Context
	// top is the directory that has the tree, and topName the tree's name. moved counts the
	// directories that were moved up because they lie too deep.
	top     int
	topName string
	moved   int
}

// remove deletes name in the directory parent. shown is its path for errors.
func (r *remover) remove(parent int, name, shown string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if !errors.Is(err, unix.EISDIR) {
		return deleted(err, "delete", shown)
	}
	if depth == maxDepth {
		return r.moveUp(parent, name, shown)
	}
	for sweeps := 0; sweeps < maxSweeps; sweeps++ {
		moved := r.moved
		if err := r.empty(parent, name, shown, depth); err != nil {
			return err
		}
		err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) {
			break
		}
		if r.moved > moved {
			sweeps = 0 // directories came to the top of the tree, which is progress
		}
	}
	return deleted(err, "delete", shown)
}

// deleted turns the kernel's answer to a step of a deletion into an error. It is nil if the file is
// gone.
func deleted(err error, step, shown string) error {
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		return fmt.Errorf("%s: %w", shown, ErrMounted)
	}
	return &fs.PathError{Op: step, Path: shown, Err: err}
}

// empty deletes all that is in a directory.
func (r *remover) empty(parent int, name, shown string, depth int) error {
	fd, err := beneath.Open(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW,
		beneath.NoXDev|beneath.NoSymlinks)
	if err != nil {
		return deleted(err, "open", shown)
	}
	return eachName(fd, shown, r.ctx.Err, func(child string) error {
		return r.remove(fd, child, shown+"/"+child, depth+1)
	})
}

// eachName reads a directory, closes it, and calls f with each name in it. It stops if f fails, or
// if stopped, which it calls between batches, returns an error.
func eachName(fd int, shown string, stopped func() error, f func(name string) error) error {
	dir := os.NewFile(uintptr(fd), shown)
	defer dir.Close()
	for {
		if err := stopped(); err != nil {
			return err
		}
		names, err := dir.Readdirnames(batch)
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// moveUp moves a directory that lies too deep to the top of the tree. A later sweep of the top
// finds it there.
func (r *remover) moveUp(parent int, name, shown string) error {
	for {
		r.moved++
		target := r.topName + "/" + movedPrefix + strconv.Itoa(r.moved)
		err := unix.Renameat2(parent, name, r.top, target, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return deleted(err, "move up", shown)
		}
	}
}

// movedPrefix begins the names of directories that were moved up.
const movedPrefix = ".berth-deleting-"
