//go:build cluster

package test

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// benchRounds is how often the columns take turns, so that other work of the machine affects
	// both.
	benchRounds = 3
	// benchPods are made one after the other, benchGets read by as many readers at once, and
	// benchChanges seen by benchWatchers, who share a connection with others up to perConnection.
	benchPods, benchGets, readers               = 200, 20_000, 8
	benchChanges, benchWatchers                 = 5, 1000
	perConnection                               = 50
	benchResidents                              = 100
	benchCalm, benchIdle          time.Duration = 75 * time.Second, 30 * time.Second
)

// row is a row of the table.
type row struct {
	name string
	// bound is what berth-apiserver promises, in the unit of the values: at most that, or at least
	// that if least is set. 0 is no promise.
	bound float64
	least bool
}

// benchRows are the rows of the table, in its order.
var benchRows = []row{
	{name: "first start → readyz", bound: 3},
	{name: "start → readyz", bound: 3},
	{name: "memory, empty: RSS", bound: 150e6},
	{name: "memory, empty: anonymous", bound: 70e6},
	{name: "idle cpu, empty", bound: 0.005},
	{name: "create pod, p50"},
	{name: "create pod, p99", bound: 0.025},
	{name: "get pod, per second", bound: 5000, least: true},
	{name: "change → seen by 1,000 watchers, median"},
	{name: "change → seen by 1,000 watchers, worst", bound: 0.1},
	{name: "memory, 100 pods: RSS", bound: 200e6},
	{name: "memory, 100 pods: anonymous", bound: 110e6},
}

// verdict returns the row's bound and whether a value keeps it, as the table shows them.
func (r row) verdict(value float64) (bound, kept string) {
	if r.bound == 0 {
		return "", ""
	}
	sign, broken := "≤", value > r.bound
	if r.least {
		sign, broken = "≥", value < r.bound
	}
	kept = "yes"
	if broken {
		kept = "no"
	}
	return sign + " " + unit(r.name, r.bound), kept
}

// column is a server that is measured. start returns its processes, which listen at the same
// address and have the same keys as those of the other.
type column struct {
	name  string
	start func(b *testing.B, dir string) []*exec.Cmd
	rows  map[string][]float64
}

// BenchmarkServer measures berth-apiserver, with its scheduler and controllers, beside
// kube-apiserver and etcd, which have neither, by turns. "make bench-apiserver" prints one table.
func BenchmarkServer(b *testing.B) {
	s := start(b) // makes the keys
	s.stop(b)
	columns := []*column{
		{name: "berth-apiserver", start: s.bundled}, {name: "kube-apiserver + etcd", start: s.upstream},
	}
	for round := range benchRounds {
		for i := range columns {
			c := columns[(round+i)%len(columns)]
			c.measure(b, s)
		}
	}
	var out strings.Builder
	fmt.Fprint(&out, "| What |")
	for _, c := range columns {
		fmt.Fprintf(&out, " %s |", c.name)
	}
	fmt.Fprint(&out, " promised | kept |\n|---|---|---|---|---|\n")
	for _, r := range benchRows {
		fmt.Fprintf(&out, "| %s |", r.name)
		for _, c := range columns {
			fmt.Fprintf(&out, " %s |", unit(r.name, quantile(c.rows[r.name], 50)))
		}
		bound, kept := r.verdict(quantile(columns[0].rows[r.name], 50))
		fmt.Fprintf(&out, " %s | %s |\n", bound, kept)
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(&out, "\n%s, load average at the end %s", time.Now().UTC().Format(time.DateOnly), load)
	fmt.Println(out.String())
}

// unit returns a value as the table shows it.
func unit(row string, value float64) string {
	switch {
	case strings.HasPrefix(row, "memory"):
		return fmt.Sprintf("%.0f MB", value/1e6)
	case strings.HasPrefix(row, "idle"):
		return fmt.Sprintf("%.2f %%", value*100)
	case strings.HasSuffix(row, "per second"):
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.1f ms", value*1e3)
}

// quantile uses the nearest rank.
func quantile(values []float64, p float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, int(math.Ceil(p/100*float64(len(sorted))))-1)]
}

// bundled starts berth-apiserver with the keys of s and a store in dir.
func (s *server) bundled(b *testing.B, dir string) []*exec.Cmd {
	b.Helper()
	if _, err := os.Stat(dir); err != nil {
		// The folder of the store says that an empty API is wanted with these keys.
		if err := os.MkdirAll(filepath.Join(dir, "etcd"), 0o700); err != nil {
			b.Fatal(err)
		}
		if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(s.file("pki"))); err != nil {
			b.Fatal(err)
		}
	}
	args := slices.Clone(s.args)
	args[slices.Index(args, "--data-dir")+1] = dir
	return []*exec.Cmd{s.run(b, program, args...)}
}

// upstream starts kube-apiserver with the keys of s, and etcd with a store in dir.
func (s *server) upstream(b *testing.B, dir string) []*exec.Cmd {
	b.Helper()
	file := func(name string) string { return s.file(filepath.Join("pki", name)) }
	client := fmt.Sprintf("http://127.0.0.1:%d", freePort(b))
	peer := fmt.Sprintf("http://127.0.0.1:%d", freePort(b))
	etcd := s.run(b, etcdProgram(b), "--data-dir", filepath.Join(dir, "etcd"), "--logger", "zap", "--log-level", "error",
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		b.Fatal(err)
	}
	return []*exec.Cmd{etcd, s.run(b, filepath.Join(filepath.Dir(kubectl), "kube-apiserver"),
		"--etcd-servers", client, "--bind-address", "127.0.0.1", "--secure-port", port, "--cert-dir", dir,
		"--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none",
		"--tls-cert-file", file("server.pem"), "--tls-private-key-file", file("server.pem"), "--client-ca-file",
		file("ca.crt"), "--service-account-key-file", file("service-accounts.key"), "--service-account-signing-key-file",
		file("service-accounts.key"), "--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-cluster-ip-range", "10.96.0.0/16", "--authorization-mode", "Node,RBAC", "--enable-admission-plugins",
		"NodeRestriction", "--disable-admission-plugins", "ServiceAccount",
		"--shutdown-watch-termination-grace-period", "1s")}
}

// run starts a program, which ends with the benchmark at the latest.
func (s *server) run(b *testing.B, path string, args ...string) *exec.Cmd {
	b.Helper()
	cmd := exec.Command(path, args...)
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { end(cmd) })
	return cmd
}

// end stops a program and waits for its end.
func end(cmd *exec.Cmd) {
	if cmd.ProcessState == nil {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
}

// measure takes one turn of a column.
func (c *column) measure(b *testing.B, s *server) {
	b.Helper()
	dir := shortFolder(b)
	note := func(row string, value float64) {
		if c.rows == nil {
			c.rows = map[string][]float64{}
		}
		c.rows[row] = append(c.rows[row], value)
		b.Logf("%s: %s: %s", c.name, row, unit(row, value))
	}
	var processes []*exec.Cmd
	for _, row := range []string{"first start → readyz", "start → readyz"} {
		for _, p := range slices.Backward(processes) {
			end(p)
		}
		began := time.Now()
		processes = c.start(b, filepath.Join(dir, "data"))
		probe := &server{dir: s.dir, url: s.url, log: s.log, done: make(chan struct{})}
		probe.await(b, c.name+" is ready", func() error {
			code, body, err := s.get("/readyz")
			if err == nil && code != http.StatusOK {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		})
		note(row, time.Since(began).Seconds())
	}
	defer func() {
		for _, p := range slices.Backward(processes) {
			end(p)
		}
	}()
	time.Sleep(benchCalm)
	before := spent(b, processes)
	time.Sleep(benchIdle)
	note("idle cpu, empty", (spent(b, processes)-before).Seconds()/benchIdle.Seconds())
	noteMemory(b, note, "memory, empty", processes)
	client := s.client(b)
	if _, err := client.CoreV1().Nodes().Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
		metav1.CreateOptions{}); err != nil { // pods of no node would be removed
		b.Fatal(err)
	}
	times := makePods(b, client, "bench", benchPods)
	note("create pod, p50", quantile(times, 50))
	note("create pod, p99", quantile(times, 99))
	note("get pod, per second", reads(b, client))
	times = fanOut(b, s)
	note("change → seen by 1,000 watchers, median", quantile(times, 50))
	note("change → seen by 1,000 watchers, worst", slices.Max(times))
	background := metav1.DeletePropagationBackground
	if err := client.CoreV1().Pods("default").DeleteCollection(b.Context(),
		metav1.DeleteOptions{GracePeriodSeconds: new(int64), PropagationPolicy: &background},
		metav1.ListOptions{}); err != nil {
		b.Fatal(err)
	}
	makePods(b, client, "resident", benchResidents)
	time.Sleep(benchCalm)
	noteMemory(b, note, "memory, 100 pods", processes)
}

// makePods makes pods one after the other, and returns how long each took, in seconds.
func makePods(b *testing.B, client kubernetes.Interface, prefix string, n int) (times []float64) {
	b.Helper()
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", prefix, i), Labels: map[string]string{"app": prefix}},
			Spec: corev1.PodSpec{
				NodeName: nodeName, AutomountServiceAccountToken: new(bool),
				Containers:  []corev1.Container{{Name: "c", Image: "registry.example/image:1"}},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			},
		}
		began := time.Now()
		if _, err := client.CoreV1().Pods("default").Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(began).Seconds())
	}
	return times
}

// reads returns how many pods per second the readers get.
func reads(b *testing.B, client kubernetes.Interface) float64 {
	b.Helper()
	var all sync.WaitGroup
	failed := make(chan error, readers)
	began := time.Now()
	for range readers {
		all.Go(func() {
			for i := range benchGets / readers {
				name := fmt.Sprintf("bench-%d", i%benchPods)
				if err := client.CoreV1().RESTClient().Get().Namespace("default").Resource("pods").Name(name).
					Do(b.Context()).Error(); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
	return benchGets / took.Seconds()
}

// fanOut returns how long changes of an object took to reach all of its watchers, in seconds.
func fanOut(b *testing.B, s *server) (times []float64) {
	b.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.file("admin.kubeconfig"))
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	objects := s.client(b).CoreV1().ConfigMaps("default")
	watched, err := objects.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "watched"}},
		metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	seen := make(chan error, benchWatchers)
	var client kubernetes.Interface
	for i := range benchWatchers {
		if i%perConnection == 0 {
			if client, err = kubernetes.NewForConfig(ownConnection(config)); err != nil {
				b.Fatal(err)
			}
		}
		stream, err := client.CoreV1().RESTClient().Get().Namespace("default").Resource("configmaps").
			Param("watch", "true").Param("fieldSelector", "metadata.name=watched").
			Param("resourceVersion", watched.ResourceVersion).Stream(ctx)
		if err != nil {
			b.Fatal(err)
		}
		all.Go(func() {
			defer stream.Close()
			for lines := bufio.NewReader(stream); ; {
				_, err := lines.ReadBytes('\n')
				if ctx.Err() != nil {
					return
				}
				if seen <- err; err != nil {
					return
				}
			}
		})
	}
	for i := range benchChanges {
		began := time.Now()
		if _, err := objects.Patch(ctx, "watched", "application/merge-patch+json",
			fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i), metav1.PatchOptions{}); err != nil {
			b.Fatal(err)
		}
		for range benchWatchers {
			if err := <-seen; err != nil {
				b.Fatal(err)
			}
		}
		times = append(times, time.Since(began).Seconds())
	}
	return times
}

// ownConnection returns the config of a client that shares its connection with no other.
func ownConnection(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Dial = (&net.Dialer{}).DialContext // with one of these, the connection is not from client-go's cache
	return own
}

// spent returns how much processor time processes have taken.
func spent(b *testing.B, processes []*exec.Cmd) (sum time.Duration) {
	b.Helper()
	const tick = 10 * time.Millisecond // of proc(5), on every Linux that Go runs on
	for _, p := range processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(after)
		for _, field := range fields[11:13] { // utime and stime
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			sum += time.Duration(ticks) * tick
		}
	}
	return sum
}

// noteMemory notes how much memory processes have.
func noteMemory(b *testing.B, note func(string, float64), row string, processes []*exec.Cmd) {
	b.Helper()
	sums := map[string]float64{}
	for _, p := range processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[2] == "kB" {
				kilobytes, err := strconv.ParseFloat(fields[1], 64)
				if err != nil {
					b.Fatal(err)
				}
				sums[fields[0]] += kilobytes * 1024
			}
		}
	}
	note(row+": RSS", sums["VmRSS:"])
	note(row+": anonymous", sums["RssAnon:"])
}
