package main

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// growth is how much "make bench-growth" measures.
type growth struct {
	// containerd and fake are how many pods come at once to an agent on the two runtimes.
	containerd, fake []int
	// scraped is how many pods a node has whose statistics are asked for.
	scraped int
	// settle, idle, scrapes and period are as in sizes.
	settle, idle time.Duration
	scrapes      int
	period       time.Duration
	// whole says that the results are to be kept.
	whole bool
}

func growthOf(isQuick bool) growth {
	if isQuick {
		return growth{
			containerd: []int{5, 10}, fake: []int{5, 10}, scraped: 10,
			settle: 3 * time.Second, idle: 5 * time.Second, scrapes: 4, period: 2 * time.Second,
		}
	}
	return growth{
		containerd: []int{50, 100, 250}, fake: []int{50, 100, 250, 500}, scraped: 100,
		// The agent gives back the pages of its program every 10 s.
		settle: 15 * time.Second, idle: 30 * time.Second, scrapes: 18, period: 10 * time.Second, whole: true,
	}
}

// The keys of the values of growth, besides those of bursts, idle nodes and memory.
const (
	lastEach = "burst_last_ms_per_pod"
	goneEach = "remove_ms_per_pod"
	rssEach  = "rss_kb_per_pod"
	anonEach = "anon_kb_per_pod"
)

// grow measures what many pods cost an agent, and what its statistics of them cost.
func grow(ctx context.Context, g growth, stock bool, only string, asJSON bool) error {
	rep := newReport("bench-growth", "growth.md", stock)
	size := sizes{settle: g.settle, idle: g.idle, scrapes: g.scrapes, period: g.period, stock: stock}
	pods := map[string]int{}
	var crowds []*column
	for _, n := range g.containerd {
		c := newColumn(strconv.Itoa(n), newBerth)
		pods[c.Name], crowds = n, append(crowds, c)
	}
	for _, n := range g.fake {
		c := newColumn(fakeColumn(n), newBerth)
		c.fake = true
		pods[c.Name], crowds = n, append(crowds, c)
	}
	crowds = wanted(only, crowds...)
	for _, c := range crowds {
		size.burst = pods[c.Name]
		if err := on(ctx, c, size, (*bed).crowd); err != nil {
			return err
		}
	}
	size.burst = g.scraped
	asked := wanted(only, newColumn(berthColumn, newBerth), newColumn(kubeletColumn, newKubelet))
	for _, c := range asked {
		if err := on(ctx, c, size, (*bed).scraped); err != nil {
			return err
		}
	}
	rep.tables = []table{{growthRows(g), crowds}, {scrapeRows(size), asked}}
	return rep.finish(asJSON, g.whole && only == "")
}

// fakeColumn is the name of the column of n pods on the fake runtime.
func fakeColumn(n int) string { return fmt.Sprintf("fake %d", n) }

// crowd has many pods come to an agent at once, and go at once. It measures what that takes, and
// what the agent takes while they run.
func (b *bed) crowd(ctx context.Context) error {
	a, err := b.beginAgent(ctx)
	if err != nil {
		return err
	}
	before := b.cost()
	names, mark, last, err := b.make(ctx, "many")
	if err != nil {
		return err
	}
	// The agent has more to do for pods that run: their statuses.
	if err := rest(ctx, b.size.settle); err != nil {
		return err
	}
	b.bursts, b.costs = append(b.bursts, last), append(b.costs, b.cost().since(before))
	if err := b.allShown(ctx, a); err != nil {
		return err
	}
	if err := b.idle(ctx, a); err != nil {
		return err
	}
	gone, err := b.remove(ctx, names, mark)
	if err != nil {
		return err
	}
	b.removals = append(b.removals, gone)
	b.sumBursts()
	b.sumEach(gone)
	return nil
}

// beginAgent starts the bed's agent and measures its memory before the first pod.
func (b *bed) beginAgent(ctx context.Context) (agent, error) {
	a, ok := b.subject.(agent)
	if !ok {
		return nil, fmt.Errorf("%s is no agent", b.out.Name)
	}
	return a, b.begin(ctx, a)
}

// allShown fails if the agent does not show all pods of the bed as running and ready.
func (b *bed) allShown(ctx context.Context, a agent) error {
	pods, err := a.summaries(ctx)
	if err != nil {
		return err
	}
	if !allRun(pods, b.size.burst) {
		return fmt.Errorf("the agent does not show all %d pods as ready, %s after they ran", b.size.burst, b.size.settle)
	}
	return nil
}

// sumEach divides what all pods took by their number.
func (b *bed) sumEach(gone time.Duration) {
	v, n := b.out.Values, float64(b.size.burst)
	v[lastEach] = v[burstLast] / n
	v[goneEach] = gone.Seconds() * 1000 / n
	v[rssEach] = (v[rssFull] - v[rssEmpty]) * 1024 / n
	v[anonEach] = (v[anonFull] - v[anonEmpty]) * 1024 / n
}

// growthRows returns the table of growth. On each runtime, the most pods should take no more for
// each of them than the fewest.
func growthRows(g growth) []row {
	const most = 1.25
	var flat []aim
	for _, ends := range [][2]string{
		{strconv.Itoa(g.containerd[0]), strconv.Itoa(g.containerd[len(g.containerd)-1])},
		{fakeColumn(g.fake[0]), fakeColumn(g.fake[len(g.fake)-1])},
	} {
		flat = append(flat, aim{
			ends[1], ends[0], fmt.Sprintf("≤ %.2f × %s", most, ends[0]),
			func(v, fewest float64) bool { return v <= most*fewest },
		})
	}
	return []row{
		{"pods at once, the last runs", burstLast, "%.0f ms", nil},
		{"for each pod", lastEach, "%.1f ms", flat},
		{"CPU for each pod: the agent", costAgent, "%.1f ms", flat},
		{"CPU for each pod: containerd", costContainerd, "%.1f ms", nil},
		{"memory, anonymous, 0 pods", anonEmpty, "%.1f MB", nil},
		{"memory, anonymous, all pods", anonFull, "%.1f MB", nil},
		{"for each pod more", anonEach, "%.0f KB", flat},
		{"memory (RSS), 0 pods", rssEmpty, "%.1f MB", nil},
		{"memory (RSS), all pods", rssFull, "%.1f MB", nil},
		{"for each pod more", rssEach, "%.0f KB", flat},
		{"idle: CPU of the agent", cpuAgent, "%.2f %%", nil},
		{"all stopped and removed, for each pod", goneEach, "%.1f ms", nil},
	}
}
