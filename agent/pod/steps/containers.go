package steps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
)

// Containers has the app containers and the ephemeral ones.
type Containers struct {
	*Starter
	*Stopper
}

// Name is "containers".
func (Containers) Name() string { return "containers" }

// Ensure stops the containers that plan wants killed, and starts those whose turn it is.
func (c Containers) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	c.shortenAsked(ctx, p)
	again := c.stopAll(ctx, p)
	out, err := c.startAll(ctx, p, plan.App)
	// ephemeral containers wait for no hook of others
	_, alone := c.startAll(ctx, p, plan.Ephemeral)
	err = errors.Join(err, alone)
	c.waits(p, &out)
	out.RetryAt = Earlier(out.RetryAt, again)
	return out, err
}

// Remove stops the containers that run, each within its grace. It holds back the rest of the
// take-down until all have ended. With p.Terminated it removes the containers' records.
func (c Containers) Remove(ctx context.Context, p *Sync) (Outcome, error) {
	c.shorten(ctx, p)
	again := c.stopAll(ctx, p)
	if names := running(&p.Observed); len(names) > 0 {
		text := "containers to stop: " + strings.Join(names, ", ")
		if last := lastStop(p.Record.Stops); !last.IsZero() {
			text += ", which are killed at " + last.Local().Format(time.TimeOnly) + " at the latest"
		}
		return Outcome{Halt: true, RetryAt: again, Waiting: text}, nil
	}
	if slices.ContainsFunc(p.Tasks.Active(), ofContainer) {
		return Outcome{Halt: true, Waiting: "operations on ended containers to finish"}, nil
	}
	if !p.Terminated {
		return Outcome{}, nil
	}
	var errs []error
	for _, old := range p.Observed.Containers {
		errs = append(errs, c.remove(ctx, p, old))
	}
	err := errors.Join(errs...)
	return Outcome{Halt: err != nil}, err
}

// lastStop returns when the last of the stops under way runs out of grace; zero if no stop is under
// way.
func lastStop(stops map[string]plan.ContainerStop) time.Time {
	var last time.Time
	for _, stop := range stops {
		if end := stop.Since.Add(max(stop.Grace, minGrace)); end.After(last) {
			last = end
		}
	}
	return last
}

// tidy removes the attempts of containers that plan named. An attempt that is not removed does not
// hold back the others.
func (s *Starter) tidy(ctx context.Context, p *Sync) error {
	var errs []error
	for _, c := range p.Actions.RemoveContainers {
		if c.Created() {
			errs = append(errs, s.removeUnstarted(ctx, p, c))
			continue
		}
		p.Changed = true
		errs = append(errs, s.remove(ctx, p, c))
	}
	return errors.Join(errs...)
}

// remove removes one attempt of a container. The log of the newest attempt stays with the pod's
// logs; the logs of older ones are removed.
func (s *Starter) remove(ctx context.Context, p *Sync, c *plan.Container) error {
	newest := p.Observed.Latest(c.Name())
	return s.Discard(ctx, p.Pod, c, newest != nil && newest.Attempt() > c.Attempt())
}

// Discard removes one attempt of a container from the runtime and, with logs, its logs. It removes
// the link to the attempt's log first: without the container nobody would find the link again if
// the agent was killed in between.
func (s *Starter) Discard(ctx context.Context, pod *v1.Pod, c *plan.Container, logs bool) error {
	link := cri.LogSymlink(s.LinksDir, cri.IDOf(pod), c.Name(), c.Id)
	if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("removing the log link of container %s: %w", c.Name(), err)
	}
	if err := s.Runtime.RemoveContainer(ctx, c.Id); err != nil {
		return fmt.Errorf("removing container %s (%s): %w", c.Name(), c.Id, err)
	}
	if logs && c.LogPath != "" {
		return removeLogs(s.PodLogsDir, c.LogPath)
	}
	return nil
}

// removeLogs removes a log and its rotated parts.
func removeLogs(root, path string) error {
	if rel, err := filepath.Rel(root, path); err != nil || !filepath.IsLocal(rel) {
		return nil //nolint:nilerr // not one of our logs: there is nothing to remove
	}
	rotated, err := filepath.Glob(path + ".*")
	if err != nil {
		return fmt.Errorf("looking for rotated logs: %w", err)
	}
	for _, f := range append(rotated, path) {
		if err := os.Remove(f); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("removing an old log: %w", err)
		}
	}
	return nil
}
