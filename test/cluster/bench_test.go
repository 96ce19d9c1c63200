//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/test/bare"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

const (
	// singles is how many pods come and go one after the other; crowd, how many are created at once, crowds times; parallel, how many bare calls are made at a time.
	singles, crowd, crowds, parallel = 20, 50, 3, 8
	// idleTime is how long nothing happens while requests are counted, after calm.
	idleTime, calm = time.Minute, 10 * time.Second
	// beat is a pause in which an agent ends what it still has to do after a pod came or went.
	beat = 500 * time.Millisecond
)

// life is when what happened to a pod. running is the runtime's time; the others are when a watcher of the API had heard.
type life struct{ created, bound, running, ready, deleted, gone time.Time }

// lives follows pods in the API and notes when it hears of what.
type lives struct {
	c  *Cluster
	w  *Witness
	mu sync.Mutex
	of map[string]*life
}

// note is told of every version of every pod.
func (l *lives) note(p *v1.Pod, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	x, now := l.of[p.Name], time.Now()
	if x == nil {
		return
	}
	if p.Spec.NodeName != "" && x.bound.IsZero() {
		x.bound = now
	}
	if env.Ready(p) && x.ready.IsZero() {
		x.ready = now
	}
	if gone {
		x.gone = now
	}
}

// up creates pods at once and returns when all are Ready.
func (l *lives) up(ctx context.Context, names ...string) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, name := range names {
		g.Go(func() error {
			l.mu.Lock()
			l.of[name] = &life{created: time.Now()}
			l.mu.Unlock()
			_, err := l.w.client.Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: v1.PodSpec{
				AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](30),
				Containers: []v1.Container{{Name: "main", Image: images.Busybox, Command: []string{"sh", "-c", bare.Script}, ImagePullPolicy: v1.PullIfNotPresent}},
			}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	err := l.w.Wait(ctx, func(pods map[string]*v1.Pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool { p := pods["default/"+name]; return p == nil || !env.Ready(p) })
	})
	for _, name := range names {
		if err != nil {
			return err
		}
		var since time.Time
		since, err = l.runningSince(ctx, name)
		l.mu.Lock()
		l.of[name].running = since
		l.mu.Unlock()
	}
	return err
}

// runningSince asks the runtime when a pod's container started.
func (l *lives) runningSince(ctx context.Context, name string) (time.Time, error) {
	list, err := l.c.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{bare.PodLabel: name}}})
	if err != nil || len(list.Containers) != 1 {
		return time.Time{}, fmt.Errorf("find the container of %s: %w: %v", name, err, list)
	}
	s, err := l.c.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: list.Containers[0].Id})
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, s.Status.StartedAt), nil
}

// down deletes pods at once and returns when the API has none of them.
func (l *lives) down(ctx context.Context, names ...string) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, name := range names {
		g.Go(func() error {
			l.mu.Lock()
			l.of[name].deleted = time.Now()
			l.mu.Unlock()
			return l.w.client.Delete(ctx, "default", name, metav1.DeleteOptions{})
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return l.w.Wait(ctx, func(pods map[string]*v1.Pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return pods["default/"+name] != nil })
	})
}

// take returns one stretch of the pods' lives.
func (l *lives) take(names []string, stretch func(*life) time.Duration) []time.Duration {
	out := make([]time.Duration, len(names))
	for i, name := range names {
		out[i] = stretch(l.of[name])
	}
	return out
}

// percentile is by nearest rank.
func percentile(values []time.Duration, p float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

func named(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return out
}

// column has the values of one subject, by row.
type column map[string]string

var benchRows = []string{
	"create → bound, one pod, p50", "create → running, one pod, p50", "create → running, one pod, p99", "bound → running, one pod, p50", "running → Ready in the API, one pod, p50",
	"create → Ready in the API, one pod, p50", "create → Ready in the API, one pod, p99", "delete → gone from the API, one pod, p50", "50 pods at once, running", "50 pods at once, Ready in the API",
	"50 pods at once, gone from the API", "API requests per pod start", "API requests per pod end", "API requests in an idle minute, 50 pods", "of them Lease",
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1000) }

func rate(n int, d time.Duration) string     { return fmt.Sprintf("%.1f pods/s", float64(n)/d.Seconds()) }
func last(t []time.Duration) time.Duration   { return slices.Max(t) }
func median(d []time.Duration) time.Duration { return percentile(d, 50) }

// BenchmarkNode measures pods of the API on a node of a real control plane beside bare CRI calls: "make bench-cluster" prints one table.
func BenchmarkNode(b *testing.B) {
	c := Start(b, Options{})
	a, err := c.NewAgent(b.Context(), c.NodeOptions(b, env.NodeName, env.AgentOptions{Kubelet: KubeletOptions(c.Env) + "clusterDNS: [10.96.0.10]\n"}))
	if err != nil {
		b.Fatal(err)
	}
	kubelet := c.NewKubelet(b, a)
	l := &lives{c: c, w: c.Witness(b), of: map[string]*life{}}
	l.w.Tell(l.note)
	columns := map[string]column{}
	if columns["bare"], err = benchBare(b.Context(), c); err != nil {
		b.Fatal(err)
	}
	for _, subject := range []struct {
		name        string
		start, stop func() error
	}{{"berth", a.Start, a.Stop}, {"kubelet", kubelet.Start, kubelet.Stop}} {
		if err := subject.start(); err != nil {
			b.Fatal(err)
		}
		c.WaitNodeReady(b)
		c.Eventually(b, Contains("default"), "get", "serviceaccounts", "-o", "name")
		columns[subject.name] = benchAgent(b, l, subject.name)
		b.Logf("%s: %v", subject.name, columns[subject.name]) // the rest takes minutes
		if err := subject.stop(); err != nil {
			b.Fatal(err)
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "| What | bare | berth | kubelet |\n|---|---|---|---|\n")
	for _, row := range benchRows {
		fmt.Fprintf(&out, "| %s |", row)
		for _, name := range []string{"bare", "berth", "kubelet"} {
			value := columns[name][row]
			if value == "" {
				value = "–"
			}
			fmt.Fprintf(&out, " %s |", value)
		}
		fmt.Fprintln(&out)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&out, "\n%s, load average at the end %s", time.Now().UTC().Format(time.DateOnly), load)
	fmt.Println(out.String())
}

// benchBare measures bare calls: pods in turn, then at once.
func benchBare(ctx context.Context, c *Cluster) (column, error) {
	r, out := bare.New(c.Env), column{}
	var one, all []time.Duration
	for _, name := range named("bare", singles) {
		began := time.Now()
		if _, err := r.Up(ctx, name); err != nil {
			return nil, err
		}
		one = append(one, time.Since(began))
		if err := r.Down(ctx, name); err != nil {
			return nil, err
		}
	}
	for round := range crowds {
		names := named(fmt.Sprintf("bares-%d", round), crowd)
		each := func(do func(string) error) error {
			var g errgroup.Group
			g.SetLimit(parallel)
			for _, name := range names {
				g.Go(func() error { return do(name) })
			}
			return g.Wait()
		}
		began := time.Now()
		if err := each(func(name string) error { _, err := r.Up(ctx, name); return err }); err != nil {
			return nil, err
		}
		all = append(all, time.Since(began))
		if err := each(func(name string) error { return r.Down(ctx, name) }); err != nil {
			return nil, err
		}
	}
	out["create → running, one pod, p50"], out["create → running, one pod, p99"] = ms(median(one)), ms(percentile(one, 99))
	out["50 pods at once, running"] = rate(crowd, median(all))
	return out, nil
}

// benchAgent measures a node's agent.
func benchAgent(b *testing.B, l *lives, agent string) column {
	b.Helper()
	ctx, out := b.Context(), column{}
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	warm := agent + "-warm"
	must(l.up(ctx, warm))
	must(l.down(ctx, warm))
	time.Sleep(calm)
	names := named(agent, singles)
	for _, name := range names {
		must(l.up(ctx, name))
		time.Sleep(beat)
		must(l.down(ctx, name))
		time.Sleep(beat)
	}
	// Requests are counted by themselves, also those that are sent late.
	counted := named(agent+"-counted", 5)
	count := func(what string, do func(string) error) string {
		before := l.c.agentRequests(b)
		for _, name := range counted {
			must(do(name))
			time.Sleep(4 * beat)
		}
		kinds := difference(before, l.c.agentRequests(b))
		b.Logf("%s: the requests of %d %s: %v", agent, len(counted), what, kinds)
		return fmt.Sprintf("%.1f", float64(sum(kinds))/float64(len(counted)))
	}
	out["API requests per pod start"] = count("starts", func(name string) error { return l.up(ctx, name) })
	out["API requests per pod end"] = count("ends", func(name string) error { return l.down(ctx, name) })

	out["create → bound, one pod, p50"] = ms(median(l.take(names, func(x *life) time.Duration { return x.bound.Sub(x.created) })))
	running := l.take(names, func(x *life) time.Duration { return x.running.Sub(x.created) })
	ready := l.take(names, func(x *life) time.Duration { return x.ready.Sub(x.created) })
	out["create → running, one pod, p50"], out["create → running, one pod, p99"] = ms(median(running)), ms(percentile(running, 99))
	out["bound → running, one pod, p50"] = ms(median(l.take(names, func(x *life) time.Duration { return x.running.Sub(x.bound) })))
	out["running → Ready in the API, one pod, p50"] = ms(median(l.take(names, func(x *life) time.Duration { return x.ready.Sub(x.running) })))
	out["create → Ready in the API, one pod, p50"], out["create → Ready in the API, one pod, p99"] = ms(median(ready)), ms(percentile(ready, 99))
	out["delete → gone from the API, one pod, p50"] = ms(median(l.take(names, func(x *life) time.Duration { return x.gone.Sub(x.deleted) })))

	var run, told, gone []time.Duration
	for round := range crowds {
		many := named(fmt.Sprintf("%s-crowd-%d", agent, round), crowd)
		began := time.Now()
		must(l.up(ctx, many...))
		run = append(run, last(l.take(many, func(x *life) time.Duration { return x.running.Sub(began) })))
		told = append(told, last(l.take(many, func(x *life) time.Duration { return x.ready.Sub(began) })))
		time.Sleep(calm)
		if round == crowds-1 {
			before := l.c.agentRequests(b)
			lease := before[leaseRequest]
			time.Sleep(idleTime)
			after := l.c.agentRequests(b)
			out["API requests in an idle minute, 50 pods"], out["of them Lease"] = fmt.Sprint(sum(difference(before, after))+after[leaseRequest]-lease), fmt.Sprint(after[leaseRequest]-lease)
			b.Logf("%s: the requests of an idle minute: %v", agent, difference(before, after))
		}
		began = time.Now()
		must(l.down(ctx, many...))
		gone = append(gone, last(l.take(many, func(x *life) time.Duration { return x.gone.Sub(began) })))
		time.Sleep(calm)
	}
	out["50 pods at once, running"], out["50 pods at once, Ready in the API"], out["50 pods at once, gone from the API"] = rate(crowd, median(run)), rate(crowd, median(told)), rate(crowd, median(gone))
	return out
}

// leaseRequest is how renewals of the Lease are counted.
const leaseRequest = "lease"

// agentRequests counts what the node has asked so far, by verb and resource.
func (c *Cluster) agentRequests(t testing.TB) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range c.nodeRequests(t) {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		kind := r.Verb
		for _, resource := range []string{"/leases", "/events", "/pods", "/nodes", "/token", "/configmaps", "/secrets", "subjectaccessreviews", "tokenreviews"} {
			if strings.Contains(path, resource) {
				kind += " " + strings.Trim(resource, "/")
				break
			}
		}
		if strings.HasSuffix(path, "/status") {
			kind += "/status"
		}
		if strings.Contains(path, "/leases/") {
			kind = leaseRequest
		}
		out[kind]++
	}
	return out
}

// difference is what was asked between two counts, without the Lease's renewals.
func difference(before, after map[string]int) map[string]int {
	out := map[string]int{}
	for kind, n := range after {
		if n -= before[kind]; n > 0 && kind != leaseRequest {
			out[kind] = n
		}
	}
	return out
}

func sum(counts map[string]int) (n int) {
	for v := range maps.Values(counts) {
		n += v
	}
	return n
}
