package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/client/api"
	barepods "github.com/berthd/berth/test/bare"
)

// container is a pod's container, and the place in the events at which it started to run.
type container struct {
	pod, id string
	process int
	mark    int
}

// alone measures what a column's node costs, and how it handles deaths of containers and of the
// agent.
func (b *bed) alone(ctx context.Context) error {
	a, isAgent := b.subject.(agent)
	if isAgent {
		if err := b.begin(ctx, a); err != nil {
			return err
		}
	}
	if floor, ok := b.subject.(*bare); ok {
		floor.parallel = b.out.Parallel
	}
	if _, err := b.burst(ctx, "many", false); err != nil {
		return err
	}
	for _, phase := range []func(context.Context, subject) error{b.idle, b.deaths} {
		if err := phase(ctx, b.subject); err != nil {
			return err
		}
	}
	if isAgent {
		return b.adoptions(ctx, a)
	}
	return nil
}

// begin starts an agent and measures its memory before the first pod.
func (b *bed) begin(ctx context.Context, a agent) error {
	if err := b.start(ctx, a); err != nil {
		return err
	}
	if err := rest(ctx, b.size.settle); err != nil {
		return err
	}
	return b.memory(a, rssEmpty, anonEmpty)
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
		Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		},
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

// idle leaves the pods alone and adds up what they cost.
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

// memory records an agent's memory.
func (b *bed) memory(s subject, total, anonymous string) error {
	rss, anon, err := memory(s.pid())
	if err != nil {
		return err
	}
	b.out.Values[total], b.out.Values[anonymous] = rss, anon
	b.say("memory: %.1f MB, of it anonymous %.1f MB", rss, anon)
	return nil
}
