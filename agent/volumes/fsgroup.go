package volumes

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/beneath"
)

// What a pod's fsGroup gets in volumes that belong to it, as the API documents fsGroup: it may read
// and write files and enter directories, whose new files belong to the group, too.
const (
	groupFileBits = 0o660
	groupDirBits  = unix.S_ISGID | 0o770
)

// The kubelet's times: when a change of many owners is first reported, and how often again.
const (
	firstReport  = 30 * time.Second
	reportPeriod = time.Minute
)

// ownership is the change of a volume's group.
type ownership struct {
	dir    string
	group  int64
	policy v1.PodFSGroupChangePolicy
}

// changeOwner gives everything in a volume to a group and lets the group use it. It follows no
// symbolic link and crosses no mount point, whatever a container does to the volume meanwhile.
// Under OnRootMismatch it leaves a volume alone whose root has the group already. The root is
// changed last, so that a change that was cut off is begun again. A change that lasts is reported
// in events.
func (m *Manager) changeOwner(ctx context.Context, pod *v1.Pod, o ownership) error {
	root, err := beneath.Root(o.dir, unix.O_NOFOLLOW)
	if err != nil {
		return &fs.PathError{Op: "open", Path: o.dir, Err: err}
	}
	defer closeFD(root)
	if o.policy == v1.FSGroupChangeOnRootMismatch {
		var stat unix.Stat_t
		if err := unix.Fstat(root, &stat); err == nil && int64(stat.Gid) == o.group &&
			stat.Mode&groupDirBits == groupDirBits {
			return nil
		}
	}
	w := &ownerWalk{ctx: ctx, group: int(o.group)}
	reporting, stop := context.WithCancel(ctx)
	reported := make(chan struct{})
	go func() {
		defer close(reported)
		reportProgress(reporting, reportName(o.dir, string(pod.UID)), w.seen.Load, func(message string) {
			m.event(pod, v1.EventTypeWarning, "VolumePermissionChangeInProgress", message)
		})
	}()
	err = w.walk(root, o.dir)
	stop()
	<-reported
	if err != nil {
		return fmt.Errorf("change owner of volume to group %d: %w", o.group, err)
	}
	return nil
}

// reportName is how events name a volume's directory: from the pod's UID on.
func reportName(dir, uid string) string {
	if i := strings.Index(dir, uid); i >= 0 {
		return dir[i:]
	}
	return dir
}

// reportProgress reports a change of owners that lasts, with the kubelet's words, until ctx ends.
func reportProgress(ctx context.Context, dir string, seen func() int64, report func(message string)) {
	timer := time.NewTimer(firstReport)
	defer timer.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if first {
			report(fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using "+
				"OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/"+
				"#configure-volume-permission-and-ownership-change-policy-for-pods", dir))
		} else {
			report(fmt.Sprintf("Setting volume ownership for %s, processed %d files.", dir, seen()))
		}
		timer.Reset(reportPeriod)
	}
}

// ownerWalk is one walk over a volume.
type ownerWalk struct {
	ctx   context.Context //nolint:containedctx // one call's
	group int
	seen  atomic.Int64
}

// walk gives all below the O_PATH handle root to the group, and then root itself. shown is its path
// for errors.
func (w *ownerWalk) walk(root int, shown string) error {
	tree := &beneath.Tree{
		Visit: func(in beneath.Dir, name string) (bool, error) { return w.child(in, name, shown) },
		TooDeep: func(path string) error {
			return fmt.Errorf("directories are nested deeper than a path can be long in %s/%s", shown, path)
		},
	}
	if err := tree.Walk(root); err != nil {
		return err
	}
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	_, err := w.entry(root, shown)
	return err
}

// entry gives the file of the O_PATH handle fd to the group, and reports whether it is a directory.
// shown is its path for errors.
func (w *ownerWalk) entry(fd int, shown string) (isDir bool, err error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return false, &fs.PathError{Op: "stat", Path: shown, Err: err}
	}
	kind := stat.Mode & unix.S_IFMT
	isDir = kind == unix.S_IFDIR
	w.seen.Add(1)
	if int(stat.Gid) != w.group {
		if err := unix.Fchownat(fd, "", -1, w.group, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return false, &fs.PathError{Op: "chown", Path: shown, Err: err}
		}
	}
	if kind == unix.S_IFLNK {
		return false, nil // its mode means nothing, and it is not followed
	}
	bits := uint32(groupFileBits)
	if isDir {
		bits = groupDirBits
	}
	mode := stat.Mode &^ unix.S_IFMT
	if mode&bits == bits && mode&(unix.S_ISUID|unix.S_ISGID) == 0 {
		// else the kernel may have dropped the set-ID bits with the owner: they stay, as the API
		// only adds bits
		return isDir, nil
	}
	// The link in /proc leads to the file that was opened, which is not a symbolic link.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode|bits); err != nil {
		return false, &fs.PathError{Op: "chmod", Path: shown, Err: err}
	}
	return isDir, nil
}

// child gives a file in a directory to the group, and reports whether it is a directory. It leaves
// out what vanishes meanwhile, and what is mounted there.
func (w *ownerWalk) child(in beneath.Dir, name, top string) (isDir bool, err error) {
	if err := context.Cause(w.ctx); err != nil {
		return false, err
	}
	shown := filepath.Join(top, in.Path, name)
	fd, there, err := in.Open(name)
	if err != nil {
		return false, &fs.PathError{Op: "open", Path: shown, Err: err}
	}
	if !there {
		return false, nil
	}
	defer closeFD(fd)
	return w.entry(fd, shown)
}
