package volumes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/mounttable"
)

// SilentFor is how long a server has to answer before what was written to it may be given up.
const SilentFor = 10 * time.Second

// aborts is how often the requests to a server are ended: a process that ends sends one after the
// other, at least one for each file. abortEvery is the time between.
const (
	aborts     = 10
	abortEvery = 500 * time.Millisecond
)

// GiveUp frees processes of a pod that SIGKILL does not end because they wait for the silent server
// of an NFS mount: what they have written and not sent is given up. Nothing is given up on a server
// that answers, nor of an export that is mounted elsewhere on the node, too, where others may have
// written. The mount stays, so that GiveUp can be called again. GiveUp takes some seconds.
func (m *Manager) GiveUp(ctx context.Context, uid types.UID) error {
	if err := checkName("pod UID", string(uid)); err != nil {
		return err
	}
	podsPath, err := filepath.EvalSymlinks(m.podsDir)
	if err != nil {
		return err
	}
	dir := filepath.Join(podsPath, string(uid))
	a := aborter{
		targets: func() ([]string, error) {
			all, err := mounttable.Mounts()
			if err != nil {
				return nil, fmt.Errorf("read mount table: %w", err)
			}
			return soleNFS(all, dir), nil
		},
		ask:   askServer,
		force: func(target string) error { return unix.Unmount(target, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW) },
		log:   m.deps.Logger,
	}
	return a.run(ctx)
}

// askServer asks the server of a mount about the mount's root.
func askServer(root int) error {
	var stat unix.Statx_t
	return unix.Statx(root, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_MTIME, &stat)
}

// aborter makes one [Manager.GiveUp]. Tests replace the kernel.
type aborter struct {
	// targets returns the mounts whose servers may be given up. ask asks the server of one, by a
	// handle, and force ends all that the kernel asks a server.
	targets func() ([]string, error)
	ask     func(root int) error
	force   func(target string) error
	log     *slog.Logger
}

// probe is a question to the server of a mount.
type probe struct {
	// root is a handle of the mount. It keeps the mount busy, so that the kernel does not unmount it.
	root   int
	answer chan error
}

// run gives up what waits for silent servers.
func (a *aborter) run(ctx context.Context) error {
	probes := map[string]*probe{}
	defer func() {
		for _, q := range probes {
			closeFD(q.root)
		}
	}()
	targets, err := a.targets()
	if err != nil {
		return err
	}
	var errs []error
	for _, target := range targets {
		// O_PATH opens the root of a mount without asking its server.
		root, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			errs = append(errs, &os.PathError{Op: "open", Path: target, Err: err})
			continue
		}
		probes[target] = &probe{root: root, answer: a.question(root)}
	}
	silent := map[string]bool{}
	patience, cancel := context.WithTimeout(ctx, SilentFor)
	defer cancel()
	for target, q := range probes {
		select {
		case <-q.answer: //nolint:errcheck // an error is an answer, too: nobody waits for it
			continue
		case <-patience.Done():
		}
		select {
		case <-q.answer: //nolint:errcheck // as above
			continue
		default:
		}
		if ctx.Err() != nil {
			return errors.Join(append(errs, context.Cause(ctx))...)
		}
		silent[target] = true
		a.log.Warn("a container waits for the server of an NFS mount: what was not written yet is given up",
			"path", target)
	}
	for try := 1; try <= aborts && len(silent) > 0; try++ {
		last := try == aborts || ctx.Err() != nil
		errs = append(errs, a.abort(silent, probes, last))
		if last {
			break
		}
		time.Sleep(abortEvery)
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

// abort ends what the kernel asks the silent servers. A server that has answered since, or whose
// export is mounted elsewhere now, is silent no more. A question may be asked too late for its
// abort, and so none is asked before the last one.
func (a *aborter) abort(silent map[string]bool, probes map[string]*probe, last bool) error {
	targets, err := a.targets()
	if err != nil {
		return err
	}
	may := map[string]bool{}
	for _, target := range targets {
		may[target] = true
	}
	var errs []error
	for target := range silent {
		q := probes[target]
		select {
		case err := <-q.answer:
			if err == nil {
				delete(silent, target)
				continue
			}
			if q.answer = nil; !last {
				q.answer = a.question(q.root) // the last abort has ended the one before
			}
		default:
		}
		if !may[target] {
			delete(silent, target)
			continue
		}
		if err := a.force(target); err != nil && !errors.Is(err, unix.EBUSY) {
			errs = append(errs, &os.PathError{Op: "abort requests", Path: target, Err: err})
		}
	}
	return errors.Join(errs...)
}

// question asks the server of a mount. The question lasts as long as the server is silent, or until
// an abort ends it, and has a handle of its own.
func (a *aborter) question(root int) chan error {
	answer := make(chan error, 1)
	own, err := unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		answer <- nil
		return answer
	}
	go func() {
		err := a.ask(own)
		closeFD(own) // before the answer: who has it may unmount
		answer <- err
	}()
	return answer
}
