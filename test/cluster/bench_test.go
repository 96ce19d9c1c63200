//go:build cluster

package cluster

import (
	"cmp"
	"context"
	"errors"
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
	// rounds is how often the columns take turns, so that other work of the machine affects all of
	// them. singles is how many pods come and go one after the other in each round. crowd is how
	// many pods are created at once in all rounds but the first. parallel is how many bare calls
	// run at a time.
	rounds, singles, crowd, parallel = 4, 5, 50, 8
	// idleTime is how long nothing happens while requests are counted. Before that, the benchmark
	// waits for calm.
	idleTime, calm = time.Minute, 10 * time.Second
	// beat is a pause in which an agent finishes its work after a pod came or went.
	beat = 500 * time.Millisecond
)

// life has the times of what happened to a pod. running is the runtime's time. The others are the
// times when a watcher of the API received the change.
type life struct{ created, bound, running, ready, deleted, gone time.Time }

// lives follows pods in the API and records their times.
type lives struct {
	c  *Cluster
	w  *Witness
	mu sync.Mutex
	of map[string]*life
}

// follow follows the pods of a cluster.
func follow(b *testing.B, c *Cluster) *lives {
	b.Helper()
	l := &lives{c: c, w: c.Witness(b), of: map[string]*life{}}
	l.w.OnChange(l.note)
	return l
}

// note gets every version of every pod.
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

// up creates pods at once and waits until all are Ready.
func (l *lives) up(ctx context.Context, names ...string) error {
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, name := range names {
		g.Go(func() error {
			l.mu.Lock()
			l.of[name] = &life{created: time.Now()}
			l.mu.Unlock()
			_, err := l.w.client.Create(ctx,
				&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: v1.PodSpec{
					AutomountServiceAccountToken: ptr.To(false), EnableServiceLinks: ptr.To(false),
					TerminationGracePeriodSeconds: ptr.To[int64](30),
					Containers: []v1.Container{
						{
							Name: "main", Image: images.Busybox, Command: []string{"sh", "-c", bare.Script},
							ImagePullPolicy: v1.PullIfNotPresent,
						},
					},
				}})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	err := l.w.Wait(ctx, func(pods map[string]*v1.Pod) bool {
		return !slices.ContainsFunc(names,
			func(name string) bool { p := pods["default/"+name]; return p == nil || !env.Ready(p) })
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
	list, err := l.c.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{LabelSelector: map[string]string{bare.PodLabel: name}},
	})
	if err != nil || len(list.Containers) != 1 {
		return time.Time{}, fmt.Errorf("find the container of %s: %w: %v", name, err, list)
	}
	s, err := l.c.Runtime().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: list.Containers[0].Id})
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, s.Status.StartedAt), nil
}

// down deletes pods at once and waits until the API has none of them.
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

// percentile uses the nearest rank.
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

var benchRows = []string{
	"create → bound, one pod, p50", "create → running, one pod, p50", "create → running, one pod, p99",
	"bound → running, one pod, p50", "running → Ready in the API, one pod, p50",
	"create → Ready in the API, one pod, p50", "create → Ready in the API, one pod, p99",
	"delete → gone from the API, one pod, p50", "50 pods at once, running", "50 pods at once, Ready in the API",
	"50 pods at once, gone from the API", "API requests per pod start", "API requests per pod end",
	"API requests in an idle minute, 50 pods", "of them Lease",
}

func ms(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d.Microseconds())/1000) }

// subject is one column: the times of its pods in all rounds so far, and the counted requests.
type subject struct {
	name string
	// start and stop are for a node's agent, and lives are of its pods. Bare calls have none.
	start, stop func() error
	lives       *lives

	ones               []*life
	run, readied, away []time.Duration
	counts             map[string]string
}

// BenchmarkNode measures pods from the API on a node of a real control plane, under berth and a
// kubelet by turns, on a node of berth-apiserver under berth, and bare CRI calls. Both API servers
// run all the time. "make bench-cluster" prints one table.
func BenchmarkNode(b *testing.B) {
	const dns = "clusterDNS: [10.96.0.10]\n"
	c := Start(b, Options{})
	a, err := c.NewAgent(b.Context(),
		c.NodeOptions(b, env.NodeName, env.AgentOptions{Kubelet: KubeletOptions(c.Env) + dns}))
	if err != nil {
		b.Fatal(err)
	}
	kubelet := c.NewKubelet(b, a)
	bundled := newBundled(b, "--workloads", "--bind-address", "0.0.0.0")
	bundled.startBundled(b)
	own, err := bundled.NewAgent(b.Context(), bundled.bundledNodeOptions(b, KubeletOptions(bundled.Env)+dns))
	if err != nil {
		b.Fatal(err)
	}
	upstream, whole := follow(b, c), follow(b, bundled)
	calls := bare.New(c.Env)
	subjects := []*subject{
		{name: "bare", counts: map[string]string{}},
		{name: "berth", start: a.Start, stop: a.Stop, lives: upstream, counts: map[string]string{}},
		{name: "kubelet", start: kubelet.Start, stop: kubelet.Stop, lives: upstream, counts: map[string]string{}},
		{name: "berth-apiserver", start: own.Start, stop: own.Stop, lives: whole, counts: map[string]string{}},
	}
	for round := range rounds {
		for i := range subjects {
			s := subjects[(round+i)%len(subjects)]
			if err := s.take(b, calls, round); err != nil {
				b.Fatalf("%s, round %d: %v", s.name, round, err)
			}
			b.Logf("round %d: %s: %v", round, s.name, s.column()) // the other rounds take minutes
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "| What | bare | berth | kubelet | berth, and berth-apiserver |\n|---|---|---|---|---|\n")
	for _, row := range benchRows {
		fmt.Fprintf(&out, "| %s |", row)
		for _, s := range subjects {
			fmt.Fprintf(&out, " %s |", cmp.Or(s.column()[row], "–"))
		}
		fmt.Fprintln(&out)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&out, "\n%s, load average at the end %s", time.Now().UTC().Format(time.DateOnly), load)
	fmt.Println(out.String())
}

// take runs one turn of a column.
func (s *subject) take(b *testing.B, calls *bare.Runner, round int) error {
	b.Helper()
	if s.start == nil {
		return s.call(b.Context(), calls, round)
	}
	if err := s.start(); err != nil {
		return err
	}
	s.lives.c.WaitNodeReady(b)
	s.lives.c.Eventually(b, Contains("default"), "get", "serviceaccounts", "-o", "name")
	return errors.Join(s.measure(b, round), s.stop())
}

// call makes bare calls: pods one after the other, then at once.
func (s *subject) call(ctx context.Context, r *bare.Runner, round int) error {
	for _, name := range named(fmt.Sprintf("bare-%d", round), singles) {
		began := time.Now()
		if _, err := r.Up(ctx, name); err != nil {
			return err
		}
		s.ones = append(s.ones, &life{created: began, running: time.Now()})
		if err := r.Down(ctx, name); err != nil {
			return err
		}
	}
	if round == 0 {
		return nil
	}
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
		return err
	}
	s.run = append(s.run, time.Since(began))
	return each(func(name string) error { return r.Down(ctx, name) })
}

// measure makes a node's agent bring pods up and down: one after the other, then at once. The last
// round also counts requests.
func (s *subject) measure(b *testing.B, round int) error {
	b.Helper()
	ctx, l, last := b.Context(), s.lives, round == rounds-1
	prefix := fmt.Sprintf("%s-%d", s.name, round)
	if err := errors.Join(l.up(ctx, prefix+"-warm"), l.down(ctx, prefix+"-warm")); err != nil {
		return err
	}
	time.Sleep(calm)
	for _, name := range named(prefix, singles) {
		if err := l.up(ctx, name); err != nil {
			return err
		}
		time.Sleep(beat)
		if err := l.down(ctx, name); err != nil {
			return err
		}
		time.Sleep(beat)
		s.ones = append(s.ones, l.of[name])
	}
	if last { // requests are counted in a part of their own, so that late ones are counted, too
		counted := named(prefix+"-counted", singles)
		if err := errors.Join(s.count(b, "start", counted, l.up),
			s.count(b, "end", counted, l.down)); err != nil {
			return err
		}
	}
	if round == 0 {
		return nil
	}
	many := named(prefix+"-crowd", crowd)
	began := time.Now()
	if err := l.up(ctx, many...); err != nil {
		return err
	}
	s.run = append(s.run, latest(l.of, many, func(x *life) time.Time { return x.running }).Sub(began))
	s.readied = append(s.readied, latest(l.of, many, func(x *life) time.Time { return x.ready }).Sub(began))
	time.Sleep(calm)
	if last {
		before := l.c.agentRequests(b)
		time.Sleep(idleTime)
		after := l.c.agentRequests(b)
		leases := after[leaseRequest] - before[leaseRequest]
		s.counts["API requests in an idle minute, "+
			"50 pods"], s.counts["of them Lease"] = fmt.Sprint(sum(difference(before, after))+leases),
			fmt.Sprint(leases)
		b.Logf("%s: the requests of an idle minute: %v", s.name, difference(before, after))
	}
	began = time.Now()
	if err := l.down(ctx, many...); err != nil {
		return err
	}
	s.away = append(s.away, latest(l.of, many, func(x *life) time.Time { return x.gone }).Sub(began))
	time.Sleep(calm)
	return nil
}

// count records how many requests the start or end of a pod needs.
func (s *subject) count(
	b *testing.B, what string, names []string, do func(context.Context, ...string) error,
) error {
	b.Helper()
	before := s.lives.c.agentRequests(b)
	for _, name := range names {
		if err := do(b.Context(), name); err != nil {
			return err
		}
		time.Sleep(4 * beat)
	}
	kinds := difference(before, s.lives.c.agentRequests(b))
	b.Logf("%s: the requests of the %s of %d pods: %v", s.name, what, len(names), kinds)
	s.counts["API requests per pod "+what] = fmt.Sprintf("%.1f", float64(sum(kinds))/float64(len(names)))
	return nil
}

// latest returns when the last of the pods reached a point of its life.
func latest(of map[string]*life, names []string, where func(*life) time.Time) time.Time {
	var at time.Time
	for _, name := range names {
		if t := where(of[name]); t.After(at) {
			at = t
		}
	}
	return at
}

// column returns the values of a subject so far, by row.
func (s *subject) column() map[string]string {
	out := maps.Clone(s.counts)
	for row, d := range map[string][]time.Duration{
		"create → bound, one pod": s.stretches(func(x *life) (from, to time.Time) {
			return x.created, x.bound
		}),
		"create → running, one pod": s.stretches(func(x *life) (from, to time.Time) {
			return x.created, x.running
		}),
		"bound → running, one pod": s.stretches(func(x *life) (from, to time.Time) {
			return x.bound, x.running
		}),
		"running → Ready in the API, one pod": s.stretches(func(x *life) (from, to time.Time) {
			return x.running, x.ready
		}),
		"create → Ready in the API, one pod": s.stretches(func(x *life) (from, to time.Time) {
			return x.created, x.ready
		}),
		"delete → gone from the API, one pod": s.stretches(func(x *life) (from, to time.Time) {
			return x.deleted, x.gone
		}),
	} {
		if len(d) > 0 {
			out[row+", p50"], out[row+", p99"] = ms(percentile(d, 50)), ms(percentile(d, 99))
		}
	}
	for row, d := range map[string][]time.Duration{
		"running": s.run, "Ready in the API": s.readied, "gone from the API": s.away,
	} {
		if len(d) > 0 {
			out["50 pods at once, "+row] = fmt.Sprintf("%.1f pods/s", crowd/percentile(d, 50).Seconds())
		}
	}
	return out
}

// stretches returns how long pods took from one point of their lives to another. It leaves out pods
// that do not have both points.
func (s *subject) stretches(points func(*life) (from, to time.Time)) (out []time.Duration) {
	for _, x := range s.ones {
		if from, to := points(x); !from.IsZero() && !to.IsZero() {
			out = append(out, to.Sub(from))
		}
	}
	return out
}

// leaseRequest is the name under which renewals of the Lease are counted.
const leaseRequest = "lease"

// agentRequests counts what the node has asked so far, by verb and resource.
func (c *Cluster) agentRequests(t testing.TB) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, r := range c.nodeRequests(t) {
		path, _, _ := strings.Cut(r.RequestURI, "?")
		kind := r.Verb
		for _, resource := range []string{
			"/leases", "/events", "/pods", "/nodes", "/token", "/configmaps", "/secrets", "subjectaccessreviews",
			"tokenreviews",
		} {
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

// difference returns the requests between two counts, without the renewals of the Lease.
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
