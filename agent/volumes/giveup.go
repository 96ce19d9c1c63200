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
	"github.com/berthd/berth/internal/retry"
)

// silentFor is how long a server has to answer before what was written to it may be given up.
const silentFor = 10 * time.Second

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
	g := giving{
		targets: func() ([]string, error) {
			all, err := mounttable.Mounts(nil)
			if err != nil {
				return nil, fmt.Errorf("read mount table: %w", err)
			}
			return soleNFS(all, dir), nil
		},
		ask:   askServer,
		force: func(target string) error { return unix.Unmount(target, unix.MNT_FORCE|unix.UMOUNT_NOFOLLOW) },
		log:   m.deps.Logger,
	}
	return g.up(ctx)
}

// askServer asks the server of a mount about the mount's root.
func askServer(root int) error {
	var stat unix.Statx_t
	return unix.Statx(root, "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_MTIME, &stat)
}

// giving is one [Manager.GiveUp]. Tests replace the kernel.
type giving struct {
	// targets returns the mounts whose servers may be given up. ask asks the server of one, by a
	// handle, and force ends all that the kernel asks a server.
	targets func() ([]string, error)
	ask     func(root int) error
	force   func(target string) error
	log     *slog.Logger
}

// asked is a question to the server of a mount.
type asked struct {
	// root is a handle of the mount. It keeps the mount busy, so that the kernel does not unmount it.
	root   int
	answer chan error
}

// up gives up what waits for silent servers.
func (g *giving) up(ctx context.Context) error {
	questions := map[string]*asked{}
	defer func() {
		for _, q := range questions {
			closeFD(q.root)
		}
	}()
	targets, err := g.targets()
	if err != nil {
		return err
	}
	for _, target := range targets {
		root, err := unix.Open(target, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: target, Err: err}
		}
		questions[target] = &asked{root: root, answer: g.question(root)}
	}
	if len(questions) == 0 || !retry.Sleep(ctx, silentFor) {
		return context.Cause(ctx)
	}
	silent := map[string]bool{}
	for target, q := range questions {
		select {
		case <-q.answer: //nolint:errcheck // an error is an answer, too: nobody waits for it
		default:
			silent[target] = true
			g.log.Warn("a container waits for the server of an NFS mount: what was not written yet is given up",
				"path", target)
		}
	}
	for try := 0; try < aborts && len(silent) > 0; try++ {
		if err := g.abort(silent, questions); err != nil {
			return err
		}
		if !retry.Sleep(ctx, abortEvery) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// abort ends what the kernel asks the silent servers. A server that has answered since, or whose
// export is mounted elsewhere now, is silent no more.
func (g *giving) abort(silent map[string]bool, questions map[string]*asked) error {
	targets, err := g.targets()
	if err != nil {
		return err
	}
	may := map[string]bool{}
	for _, target := range targets {
		may[target] = true
	}
	for target := range silent {
		q := questions[target]
		select {
		case err := <-q.answer:
			if err == nil {
				delete(silent, target)
				continue
			}
			q.answer = g.question(q.root) // the last abort has ended the one before
		default:
		}
		if !may[target] {
			delete(silent, target)
			continue
		}
		if err := g.force(target); err != nil && !errors.Is(err, unix.EBUSY) {
			return &os.PathError{Op: "abort requests", Path: target, Err: err}
		}
	}
	return nil
}

// question asks the server of a mount. The question lasts as long as the server is silent, or until
// an abort ends it, and has a handle of its own.
func (g *giving) question(root int) chan error {
	answer := make(chan error, 1)
	own, err := unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		answer <- nil
		return answer
	}
	go func() {
		defer closeFD(own)
		answer <- g.ask(own)
	}()
	return answer
}
