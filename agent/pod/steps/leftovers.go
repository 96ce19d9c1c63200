package steps

import (
	"context"
	"time"

	"github.com/berthd/berth/agent/pod/plan"
)

// leftover is an attempt of a container that was created, that never started, and that the
// runtime does not remove. The runtime does not give its name away again, so a new attempt needs
// another number. Such an attempt may still be starting, by a call whose answer is lost. So nothing
// takes its place before [leftoverAfter].
type leftover struct {
	// since is when the runtime first refused to remove it, and tried when it last did.
	since, tried time.Time
}

// Leftovers are a pod's, by container id. They outlive its syncs.
type Leftovers map[string]leftover

const (
	// leftoverAfter is how long the runtime refuses to remove an attempt before another one takes
	// its place. The first refusal comes after the call that started the attempt has ended, with
	// its caller or at its deadline. Then the runtime cleans up, which takes containerd up to three
	// minutes.
	leftoverAfter = 5 * time.Minute
	// maxLeftovers is how many leftovers of one container others take the place of: who leaves more
	// than these behind leaves all.
	maxLeftovers = 3
	// leftoverRetry is how often the runtime is asked to remove a leftover whose place is taken, and
	// leftoverTry how long the pod's sync waits for that.
	leftoverRetry = time.Minute
	leftoverTry   = 10 * time.Second
)

// stuck is the newest attempt of a container, if it is a leftover.
type stuck struct {
	err error
	// over says that another attempt may take its place.
	over bool
}

// removeUnstarted removes an attempt that was created and never started. The error is that of the
// newest attempt: older ones hold nothing back.
func (s *Starter) removeUnstarted(ctx context.Context, p *Sync, c *plan.Container) error {
	left, known := p.Leftovers[c.Id]
	replaced := p.Observed.Latest(c.Name()) != c
	if known && replaced {
		if time.Since(left.tried) < leftoverRetry {
			return nil
		}
		var done context.CancelFunc
		ctx, done = context.WithTimeout(ctx, leftoverTry)
		defer done()
	}
	p.Changed = true
	err := s.remove(ctx, p, c)
	if err == nil {
		delete(p.Leftovers, c.Id)
		return nil
	}
	left.tried = time.Now()
	if !known {
		left.since = left.tried
	}
	p.Leftovers[c.Id] = left
	if replaced {
		p.Log.Debug("an attempt that never started is still not removed", "container", c.Name(), "id", c.Id, "err", err)
		return nil
	}
	if p.stuck == nil {
		p.stuck = map[string]stuck{}
	}
	p.stuck[c.Name()] = stuck{err, time.Since(left.since) > leftoverAfter && p.leftovers(c.Name()) <= maxLeftovers}
	return err
}

// leftovers counts those of a container.
func (p *Sync) leftovers(name string) int {
	count := 0
	for _, c := range p.Observed.Containers {
		if _, left := p.Leftovers[c.Id]; left && c.Name() == name {
			count++
		}
	}
	return count
}
