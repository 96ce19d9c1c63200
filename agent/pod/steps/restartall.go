package steps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berthd/berth/cri"
)

// RestartAll ends and removes the containers that plan named, because all of the pod's containers
// start again. It takes the place of the steps: sandbox, volumes and cgroup stay as they are. Hooks
// are not run, and a stop under way is cut short.
func (c Containers) RestartAll(ctx context.Context, p *Sync) (Outcome, error) {
	for _, k := range p.Actions.Kill {
		c.hasten(ctx, p, k.Container, 0)
		c.stop(ctx, p, k)
	}
	for _, old := range p.Actions.RemoveContainers {
		if err := c.removeLogsBefore(p, old.Name(), old.Attempt()); err != nil {
			return Outcome{}, err
		}
	}
	if err := c.tidy(ctx, p); err != nil {
		return Outcome{}, err
	}
	out := Outcome{Halt: true, Waiting: "all containers to be removed, to start again"}
	if names := running(&p.Observed); len(names) > 0 {
		out.Waiting = "all containers to stop, to start again: " + strings.Join(names, ", ")
	}
	return out, nil
}

// removeLogsBefore removes the logs of a container's attempts before attempt. The log of a
// container that is removed without a successor is kept, but only the last one.
func (s *Starter) removeLogsBefore(p *Sync, container string, attempt uint32) error {
	dir := filepath.Join(cri.PodLogDir(s.PodLogsDir, cri.IDOf(p.Pod)), container)
	entries, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("looking for old logs of container %s: %w", container, err)
	}
	for _, e := range entries {
		number, isLog := strings.CutSuffix(e.Name(), ".log")
		n, err := strconv.ParseUint(number, 10, 32)
		if !isLog || err != nil || uint32(n) >= attempt {
			continue
		}
		if err := removeLogs(s.PodLogsDir, filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
