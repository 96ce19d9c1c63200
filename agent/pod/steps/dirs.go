package steps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/cri"
)

// Dirs has the pod's directories: <root>/pods/<uid> and its logs.
type Dirs struct {
	Volumes *volumes.Manager
	// PodLogsDir is where the pods' log directories are, LinksDir where the links to container logs
	// are.
	PodLogsDir, LinksDir string
}

// Name is "dirs".
func (Dirs) Name() string { return "dirs" }

// Ensure makes the directories.
func (d Dirs) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	if err := d.Volumes.EnsureDirs(ctx, p.Pod); err != nil {
		return Outcome{}, err
	}
	if err := os.MkdirAll(d.logDir(p), 0o755); err != nil {
		return Outcome{}, fmt.Errorf("making the log directory: %w", err)
	}
	return Outcome{}, nil
}

// Remove deletes the pod's logs once nobody wants the pod any more. The pod's directory was removed
// with its volumes.
func (d Dirs) Remove(ctx context.Context, p *Sync) (Outcome, error) {
	if !p.Terminated {
		return Outcome{}, nil
	}
	// A name too long for a directory (ENAMETOOLONG) never had one: there is nothing to remove.
	if err := volumes.RemoveDir(ctx, d.logDir(p)); err != nil && !errors.Is(err, unix.ENAMETOOLONG) {
		return Outcome{}, fmt.Errorf("removing the log directory: %w", err)
	}
	return Outcome{}, d.removeLinks(p)
}

// removeLinks removes links to logs of the pod's containers whose target is gone. Links of
// containers that the sync knows were removed with the containers.
func (d Dirs) removeLinks(p *Sync) error {
	names, err := filepath.Glob(filepath.Join(d.LinksDir, p.Pod.Name+"_"+p.Pod.Namespace+"_*.log"))
	if err != nil {
		return fmt.Errorf("looking for log links: %w", err)
	}
	prefix := d.logDir(p) + string(filepath.Separator)
	for _, name := range names {
		if to, err := os.Readlink(name); err != nil || len(to) < len(prefix) || to[:len(prefix)] != prefix {
			continue
		}
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("removing a log link: %w", err)
		}
	}
	return nil
}

func (d Dirs) logDir(p *Sync) string {
	return cri.PodLogDir(d.PodLogsDir, cri.IDOf(p.Pod))
}
