package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/berthd/berth/client/api"
)

const (
	// podTimeout bounds the wait for one pod, goneTimeout the wait for all sandboxes to be gone: a
	// kubelet removes dead ones once a minute. Many pods have eachTimeout more for each of them.
	podTimeout  = 2 * time.Minute
	goneTimeout = 3 * time.Minute
	eachTimeout = 2 * time.Second
	// beat is a pause in which an agent finishes its work after a pod came or went.
	beat = 500 * time.Millisecond
)

// parallels are the numbers of pods at a time that bare calls try for a burst.
var parallels = []int{1, 4, 8, 16, 50}

// leaving is a pod that was deleted and may not be gone yet.
type leaving struct {
	sandbox string
	since   time.Time
}

// together measures by turns how the columns bring pods up and down.
func together(ctx context.Context, size sizes, columns []*column) (err error) {
	var beds []*bed
	defer func() {
		for _, b := range beds {
			err = errors.Join(err, b.close())
		}
	}()
	for _, c := range columns {
		b, err := newBed(ctx, c, size)
		if err != nil {
			return err
		}
		beds = append(beds, b)
		if a, ok := b.subject.(agent); ok {
			if err := b.start(ctx, a); err != nil {
				return err
			}
		}
	}
	turns := func(n int, turn func(*bed, int) error) error {
		for i := range n {
			for _, b := range beds {
				if err := turn(b, i); err != nil {
					return fmt.Errorf("measure %s: %w", b.out.Name, err)
				}
			}
		}
		return nil
	}
	if err := turns(size.ones, func(b *bed, i int) error { return b.one(ctx, i) }); err != nil {
		return err
	}
	if err := turns(1, func(b *bed, _ int) error { return errors.Join(b.sumOnes(ctx), b.tune(ctx)) }); err != nil {
		return err
	}
	return errors.Join(
		turns(size.rounds, func(b *bed, i int) error {
			return b.measured(ctx, fmt.Sprintf("many-%d", i))
		}),
		turns(1, func(b *bed, _ int) error { b.sumBursts(); return nil }),
	)
}

// start starts an agent and waits until the agent answers.
func (b *bed) start(ctx context.Context, a agent) error {
	if err := a.start(); err != nil {
		return err
	}
	return until(ctx, a, func([]api.PodSummary) bool { return true })
}

// one brings a single pod up and down.
func (b *bed) one(ctx context.Context, i int) error {
	name := fmt.Sprintf("one-%d", i)
	mark, began := b.watch.mark(), time.Now()
	if err := b.subject.up(ctx, []string{name}); err != nil {
		return err
	}
	ran, err := b.watch.wait(ctx, podTimeout, mark, 1, appStarted)
	if err != nil {
		return err
	}
	b.up = append(b.up, ran[0].at.Sub(began))
	sandbox, err := b.watch.wait(ctx, podTimeout, mark, 1, b.sandbox(sandboxStarted))
	if err != nil {
		return err
	}
	if err := rest(ctx, beat); err != nil {
		return err
	}
	id := sandbox[0].id
	began = time.Now()
	if err := b.subject.down(ctx, []string{name}); err != nil {
		return err
	}
	stopped, err := b.watch.wait(ctx, podTimeout, mark, 1, of(id, b.sandbox(sandboxStopped)))
	if err != nil {
		return err
	}
	b.stopped = append(b.stopped, stopped[0].at.Sub(began))
	b.left = append(b.left, leaving{id, began})
	return rest(ctx, beat)
}

// sumOnes adds up the times of single pods, once the pods are gone.
func (b *bed) sumOnes(ctx context.Context) error {
	var gone []time.Duration
	for _, l := range b.left {
		removed, err := b.watch.wait(ctx, goneTimeout, 0, 1, of(l.sandbox, b.sandbox(sandboxDeleted)))
		if err != nil {
			return err
		}
		gone = append(gone, removed[0].at.Sub(l.since))
	}
	b.out.times(oneP50, percentile(b.up, 50))
	b.out.times(oneP99, percentile(b.up, 99))
	b.out.times(stopP50, percentile(b.stopped, 50))
	b.out.times(goneP50, percentile(gone, 50))
	b.out.times(goneP99, percentile(gone, 99))
	b.say("one pod: p50 %s, stopped: p50 %s, gone: p50 %s", percentile(b.up, 50), percentile(b.stopped, 50),
		percentile(gone, 50))
	return nil
}

// tune finds out with how many pods at a time bare calls are fastest.
func (b *bed) tune(ctx context.Context) error {
	floor, ok := b.subject.(*bare)
	if !ok {
		return nil
	}
	best := time.Duration(math.MaxInt64)
	for _, way := range parallels {
		floor.parallel = way
		last, err := b.burst(ctx, fmt.Sprintf("way-%d", way), true)
		if err != nil {
			return err
		}
		b.say("%d pods, %d at a time: %s", b.size.burst, way, rate(b.size.burst, last))
		if last < best {
			best, b.out.Parallel = last, way
		}
	}
	floor.parallel = b.out.Parallel
	return nil
}

// sumBursts takes the median of the bursts.
func (b *bed) sumBursts() {
	middle, gone := percentile(b.bursts, 50), percentile(b.removals, 50)
	b.out.times(burstLast, middle)
	b.out.Values[burstRate] = float64(b.size.burst) / middle.Seconds()
	b.out.Values[removeRate] = float64(b.size.burst) / gone.Seconds()
	b.say("%d pods: %s, the last after %s (of %s); gone: %s", b.size.burst, rate(b.size.burst, middle), middle, b.bursts,
		rate(b.size.burst, gone))
	for key, part := range map[string]func(cost) time.Duration{
		costAgent:      func(c cost) time.Duration { return c.agent },
		costContainerd: func(c cost) time.Duration { return c.containerd },
		costRest:       func(c cost) time.Duration { return c.machine - c.agent - c.containerd },
	} {
		var each []time.Duration
		for _, c := range b.costs {
			each = append(each, part(c)/time.Duration(b.size.burst))
		}
		if middle := percentile(each, 50); middle != 0 { // else nobody plays the part
			b.out.times(key, middle)
		}
	}
}

// measured makes many pods at once, and removes them. It notes how long both take, and what the
// making costs.
func (b *bed) measured(ctx context.Context, prefix string) error {
	before := b.cost()
	names, mark, last, err := b.make(ctx, prefix)
	if err != nil {
		return err
	}
	b.bursts, b.costs = append(b.bursts, last), append(b.costs, b.cost().since(before))
	if err := rest(ctx, beat); err != nil {
		return err
	}
	gone, err := b.remove(ctx, names, mark)
	b.removals = append(b.removals, gone)
	return err
}

// burst starts many pods, and returns the time until the last one ran. With remove it removes the
// pods again.
func (b *bed) burst(ctx context.Context, prefix string, remove bool) (time.Duration, error) {
	names, mark, last, err := b.make(ctx, prefix)
	if err != nil {
		return 0, err
	}
	if !remove {
		return last, rest(ctx, b.size.settle)
	}
	if err := rest(ctx, beat); err != nil {
		return 0, err
	}
	_, err = b.remove(ctx, names, mark)
	return last, err
}

// make starts many pods. It returns the time until the last one ran, and the place of their events.
func (b *bed) make(ctx context.Context, prefix string) (names []string, mark int, last time.Duration, err error) {
	for i := range b.size.burst {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
	}
	mark = b.watch.mark()
	began := time.Now()
	if err := b.subject.up(ctx, names); err != nil {
		return nil, 0, 0, err
	}
	limit := podTimeout + time.Duration(len(names))*eachTimeout
	ran, err := b.watch.wait(ctx, limit, mark, len(names), appStarted)
	for _, e := range ran {
		last = max(last, e.at.Sub(began))
	}
	return names, mark, last, err
}

// remove removes pods, and returns the time until the last one was gone.
func (b *bed) remove(ctx context.Context, names []string, mark int) (time.Duration, error) {
	began := time.Now()
	if err := b.subject.down(ctx, names); err != nil {
		return 0, err
	}
	limit := goneTimeout + time.Duration(len(names))*eachTimeout
	gone, err := b.watch.wait(ctx, limit, mark, len(names), b.sandbox(sandboxDeleted))
	if err != nil {
		return 0, err
	}
	var last time.Duration
	for _, e := range gone {
		last = max(last, e.at.Sub(began))
	}
	return last, rest(ctx, beat)
}

// sandbox matches what happened to a pod's sandbox. Without a pause process that is its container.
func (b *bed) sandbox(match func(event) bool) func(event) bool {
	if b.out.Name != nativeColumn {
		return match
	}
	return func(e event) bool {
		e.sandbox = true
		return match(e)
	}
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
