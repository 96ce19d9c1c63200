package gc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/cri"
)

// pruneLogs removes the logs of a pod whose own directory is a leftover, and the links to them. It
// leaves the logs of pods without a directory alone: they may be those of another agent or of a
// kubelet with another root directory.
func (c *Collector) pruneLogs(ctx context.Context, uid types.UID) error {
	entries, err := os.ReadDir(c.deps.PodLogsDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing log directories: %w", err)
	}
	for _, e := range entries {
		if id, ok := cri.ParsePodLogDir(e.Name()); !ok || id.UID != uid {
			continue
		}
		if err := volumes.RemoveDir(ctx, filepath.Join(c.deps.PodLogsDir, e.Name())); err != nil {
			return fmt.Errorf("removing the log directory: %w", err)
		}
	}
	_ = c.pruneLinks() // clearLinks tries again each minute, and reports
	return nil
}

// clearLinks removes the links of log directories that are gone.
func (c *Collector) clearLinks(ctx context.Context) {
	c.warn(ctx, &c.links, "links to logs that are gone not removed; it is tried again each minute", c.pruneLinks())
}

// pruneLinks removes the links into log directories that are gone, of pods that have no worker,
// whoever made the links. A pod's log directory is made before the links into it, and stays while
// the pod does: such a link leads nowhere for good. A link of which only the log is missing stays,
// because the log of a container that runs may be being rotated.
func (c *Collector) pruneLinks() error {
	entries, err := os.ReadDir(c.deps.LinksDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("listing the links to logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		link := filepath.Join(c.deps.LinksDir, e.Name())
		if e.Type() != fs.ModeSymlink || !c.leadsNowhere(link) {
			continue
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing a log link: %w", err))
		}
	}
	return errors.Join(errs...)
}

// leadsNowhere reports whether a link leads into a log directory that is gone.
func (c *Collector) leadsNowhere(link string) bool {
	to, err := os.Readlink(link)
	if err != nil {
		return false // it was removed meanwhile
	}
	inside, ok := strings.CutPrefix(to, c.deps.PodLogsDir+string(filepath.Separator))
	dir, _, below := strings.Cut(inside, string(filepath.Separator))
	id, parsed := cri.ParsePodLogDir(dir)
	if !ok || !below || !parsed || c.deps.Workers.Has(id.UID) {
		return false
	}
	_, err = os.Lstat(filepath.Join(c.deps.PodLogsDir, dir))
	return errors.Is(err, fs.ErrNotExist)
}
