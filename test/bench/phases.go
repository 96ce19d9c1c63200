package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/client/api"
	barepods "github.com/berthd/berth/test/bare"
)

const (
	// podTimeout bounds the wait for one pod, goneTimeout for all sandboxes: a kubelet collects dead ones once a minute.
	podTimeout  = 2 * time.Minute
	goneTimeout = 3 * time.Minute
	// beat is a pause in which an agent ends what it still has to do after a pod came or went.
	beat = 500 * time.Millisecond
)

// parallels are the ways in which bare calls try a burst.
var parallels = []int{1, 4, 8, 16, 50}

// container is a pod's container and the place in the events at which it ran.
type container struct {
	pod, id string
	process int
	mark    int
}

// measure runs all phases of a column.
func (b *bed) measure(ctx context.Context, open func(context.Context, *bed) (subject, error)) error {
	s, err := open(ctx, b)
	if err != nil {
		return err
	}
	a, isAgent := s.(agent)
	if isAgent {
		if err := b.begin(ctx, a); err != nil {
			return errors.Join(err, s.close())
		}
	}
	for _, phase := range []func(context.Context, subject) error{b.ones, b.bursts, b.idle, b.deaths} {
		if err := phase(ctx, s); err != nil {
			return errors.Join(err, s.close())
		}
	}
	if isAgent {
		err = b.adoptions(ctx, a)
	}
	return errors.Join(err, s.close())
}

// begin starts an agent and looks at its memory before the first pod.
func (b *bed) begin(ctx context.Context, a agent) error {
	if err := a.start(); err != nil {
		return err
	}
	if err := until(ctx, a, func([]api.PodSummary) bool { return true }); err != nil {
		return err
	}
	if err := rest(ctx, b.size.settle); err != nil {
		return err
	}
	return b.memory(a, rssEmpty, anonEmpty)
}

// ones brings single pods up and down, one after the other.
func (b *bed) ones(ctx context.Context, s subject) error {
	type leaving struct {
		id    string
		since time.Time
	}
	var up, stop, gone []time.Duration
	var left []leaving
	first := b.watch.mark()
	for i := range b.size.ones {
		name := fmt.Sprintf("one-%d", i)
		mark, began := b.watch.mark(), time.Now()
		if err := s.up(ctx, []string{name}); err != nil {
			return err
		}
		ran, err := b.watch.wait(ctx, podTimeout, mark, 1, appStarted)
		if err != nil {
			return err
		}
		up = append(up, ran[0].at.Sub(began))
		sandbox, err := b.watch.wait(ctx, podTimeout, mark, 1, sandboxStarted)
		if err != nil {
			return err
		}
		if err := rest(ctx, beat); err != nil {
			return err
		}
		id := sandbox[0].id
		began = time.Now()
		if err := s.down(ctx, []string{name}); err != nil {
			return err
		}
		stopped, err := b.watch.wait(ctx, podTimeout, mark, 1, of(id, sandboxStopped))
		if err != nil {
			return err
		}
		stop = append(stop, stopped[0].at.Sub(began))
		left = append(left, leaving{id, began})
		if err := rest(ctx, beat); err != nil {
			return err
		}
	}
	b.say("one pod: p50 %s", percentile(up, 50))
	for _, l := range left {
		removed, err := b.watch.wait(ctx, goneTimeout, first, 1, of(l.id, sandboxDeleted))
		if err != nil {
			return err
		}
		gone = append(gone, removed[0].at.Sub(l.since))
	}
	b.out.times(oneP50, percentile(up, 50))
	b.out.times(oneP99, percentile(up, 99))
	b.out.times(stopP50, percentile(stop, 50))
	b.out.times(goneP50, percentile(gone, 50))
	b.out.times(goneP99, percentile(gone, 99))
	b.say("stopped: p50 %s, gone: p50 %s", percentile(stop, 50), percentile(gone, 50))
	return nil
}

// bursts brings many pods up at once, a few times; the last ones stay for the phases that follow. Of bare calls the best way counts.
func (b *bed) bursts(ctx context.Context, s subject) error {
	ways := []int{0}
	floor, isBare := s.(*bare)
	if isBare {
		ways = parallels
	}
	best := time.Duration(math.MaxInt64)
	for w, way := range ways {
		if isBare {
			floor.parallel = way
		}
		var lasts []time.Duration
		for round := range b.size.rounds {
			last, err := b.burst(ctx, s, fmt.Sprintf("many-%d-%d", w, round), w < len(ways)-1 || round < b.size.rounds-1)
			if err != nil {
				return err
			}
			lasts = append(lasts, last)
		}
		middle := percentile(lasts, 50)
		b.say("%d pods (%d in parallel): %s, the last after %s", b.size.burst, way, rate(b.size.burst, middle), middle)
		if middle < best {
			best = middle
			b.out.Parallel = way
		}
	}
	b.out.times(burstLast, best)
	b.out.Values[burstRate] = float64(b.size.burst) / best.Seconds()
	return nil
}

// burst brings many pods up, and down again if asked to, and returns when the last one ran.
func (b *bed) burst(ctx context.Context, s subject, prefix string, remove bool) (time.Duration, error) {
	names := make([]string, b.size.burst)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	mark, began := b.watch.mark(), time.Now()
	if err := s.up(ctx, names); err != nil {
		return 0, err
	}
	ran, err := b.watch.wait(ctx, podTimeout, mark, len(names), appStarted)
	if err != nil {
		return 0, err
	}
	var last time.Duration
	for _, e := range ran {
		last = max(last, e.at.Sub(began))
	}
	if !remove {
		return last, rest(ctx, b.size.settle)
	}
	if err := rest(ctx, beat); err != nil {
		return 0, err
	}
	if err := s.down(ctx, names); err != nil {
		return 0, err
	}
	if _, err := b.watch.wait(ctx, goneTimeout, mark, len(names), sandboxDeleted); err != nil {
		return 0, err
	}
	return last, rest(ctx, beat)
}

// deaths kills containers that have never died, one after the other.
func (b *bed) deaths(ctx context.Context, s subject) error {
	victims, err := b.containers(ctx)
	if err != nil {
		return err
	}
	var saw, again []time.Duration
	for _, c := range victims[:min(b.size.deaths, len(victims))] {
		c.mark = b.watch.mark()
		began := time.Now()
		if err := syscall.Kill(c.process, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill the process of %s: %w", c.pod, err)
		}
		if err := s.seen(ctx, c); err != nil {
			return err
		}
		saw = append(saw, time.Since(began))
		if err := s.restart(ctx, c); err != nil {
			return err
		}
		ran, err := b.watch.wait(ctx, podTimeout, c.mark, 1, appStarted)
		if err != nil {
			return err
		}
		again = append(again, ran[0].at.Sub(began))
		if err := rest(ctx, beat); err != nil {
			return err
		}
	}
	b.out.times(seenP50, percentile(saw, 50))
	b.out.times(seenP99, percentile(saw, 99))
	b.out.times(restartP50, percentile(again, 50))
	b.say("death seen: p50 %s, restarted: p50 %s", percentile(saw, 50), percentile(again, 50))
	return nil
}

// containers returns the running containers with their pods and processes.
func (b *bed) containers(ctx context.Context) ([]container, error) {
	list, err := b.env.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}},
	})
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	var found []container
	for _, c := range list.Containers {
		ran, err := b.watch.wait(ctx, podTimeout, 0, 1, of(c.Id, appStarted))
		if err != nil {
			return nil, err
		}
		found = append(found, container{pod: c.Labels[barepods.PodLabel], id: c.Id, process: ran[0].pid})
	}
	return found, nil
}

// idle leaves the pods alone and adds up what it costs to have them.
func (b *bed) idle(ctx context.Context, s subject) error {
	b.say("idle for %s", b.size.idle)
	read := func() [3]time.Duration {
		return [3]time.Duration{cpu(s.pid()), cpu(b.env.ContainerdPID()), cpu(b.env.ShimPIDs()...)}
	}
	before, began := read(), time.Now()
	if err := rest(ctx, b.size.idle); err != nil {
		return err
	}
	after, took := read(), time.Since(began)
	for i, key := range []string{cpuAgent, cpuContainerd, cpuShims} {
		if i > 0 || s.pid() != 0 {
			b.out.Values[key] = 100 * (after[i] - before[i]).Seconds() / took.Seconds()
		}
	}
	b.say("idle CPU: agent %.2f %%, containerd %.2f %%, shims %.2f %%",
		b.out.Values[cpuAgent], b.out.Values[cpuContainerd], b.out.Values[cpuShims])
	if s.pid() == 0 {
		return nil
	}
	return b.memory(s, rssFull, anonFull)
}

// adoptions kills the agent and waits until a new one shows all pods.
func (b *bed) adoptions(ctx context.Context, a agent) error {
	var took []time.Duration
	mark := b.watch.mark()
	for range b.size.adoptions {
		a.kill9()
		began := time.Now()
		if err := a.start(); err != nil {
			return err
		}
		if err := until(ctx, a, func(pods []api.PodSummary) bool { return allRun(pods, b.size.burst) }); err != nil {
			return err
		}
		took = append(took, time.Since(began))
		if err := rest(ctx, b.size.settle); err != nil {
			return err
		}
	}
	if b.watch.mark() != mark {
		b.out.Notes = append(b.out.Notes, "containers came or went while the agent was killed and started again")
	}
	b.out.times(adoption, percentile(took, 50))
	b.say("adopted after %s", percentile(took, 50))
	return nil
}

// memory notes an agent's memory.
func (b *bed) memory(s subject, total, anonymous string) error {
	rss, anon, err := memory(s.pid())
	if err != nil {
		return err
	}
	b.out.Values[total], b.out.Values[anonymous] = rss, anon
	b.say("memory: %.1f MB, of it anonymous %.1f MB", rss, anon)
	return nil
}

// rest waits for d.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
