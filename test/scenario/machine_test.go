package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent"
	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/cluster/kube"
	apiserver "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
)

const nodeName = "node"

// machine is a node on which agents run one after the other. It must be made inside a bubble.
type machine struct {
	t          *testing.T
	dir        string // everything that agents write is beneath it
	runtime    *fake.Runtime
	cgroups    *hierarchy
	manifests  *manifests
	sourceless bool              // agents are started without a source
	api        *apiserver.Server // that agents are connected with; nil without
	watch      *watch
	log        *logBuffer
	cfg        *configs.Config
	agent      *life // nil while none runs
	latest     atomic.Pointer[life]
	// cpus is how many processors the node reports.
	cpus int64
	// atCgroups, if set, is called at each change of a cgroup, before and after the change takes
	// effect.
	atCgroups func(after bool)
	// atRequests, if set, is called at each request to the API server that changes a pod, before the
	// request and after its answer.
	atRequests func(after bool)
}

// life is one agent from its start to its end.
type life struct {
	agent   *agent.Agent
	runtime *fake.Runtime
	cgroups *memoryCgroups
	cancel  context.CancelFunc
	done    chan error
	watched chan struct{}
	crashed chan struct{} // closed by crash
	// crash sets dead before anything else. What the agent reports from then on does not count.
	dead atomic.Bool
	once sync.Once
}

// newMachine makes a machine. documents are added to the config file of the machine's agents.
func newMachine(t *testing.T, cfg fake.Config, documents ...[]byte) *machine {
	t.Helper()
	runtime := fake.New(cfg)
	m := &machine{
		t: t, dir: filepath.Join(t.TempDir(), "node"), runtime: runtime,
		cgroups:   &hierarchy{pods: map[types.UID]bool{}},
		manifests: newManifests(), watch: newWatch(), log: &logBuffer{},
	}
	m.cgroups.removed = func(uid types.UID) {
		runtime.Forget(uid)
		m.watch.forget(uid)
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m.cfg = m.config(documents)
	t.Cleanup(func() {
		m.unmount()
		if t.Failed() {
			t.Logf("the agent's log:\n%s", m.log.tail(60))
		}
	})
	return m
}

// config returns the config of all agents of the machine, which only read it.
func (m *machine) config(documents [][]byte) *configs.Config {
	m.t.Helper()
	file := filepath.Join(m.dir, "config.yaml")
	if len(documents) == 0 {
		documents = [][]byte{[]byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")}
	}
	if err := os.WriteFile(file, bytes.Join(documents, []byte("---\n")), 0o644); err != nil {
		m.t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: file})
	if err != nil {
		m.t.Fatal(err)
	}
	cfg.RootDir, cfg.Kubelet.PodLogsDir, cfg.Berth.ContainerLogsDir = m.root(), filepath.Join(m.dir, "logs"),
		filepath.Join(m.dir, "links")
	cfg.Berth.ImagesDir = ""
	cfg.HostnameOverride = nodeName
	cfg.Kubelet.ResolverConfig = ptr.To("")
	cfg.Kubelet.ImageGCHighThresholdPercent = ptr.To(int32(100)) // the fake has no disk
	cfg.Kubelet.EvictionHard = nil                               // what this machine has left is no matter
	cfg.Kubelet.StaticPodPath = ""                               // Deps.Sources replaces it
	return cfg
}

// sources returns the sources of the agent that starts.
func (m *machine) sources() []source.Source {
	if m.sourceless {
		return nil
	}
	return []source.Source{m.manifests}
}

func (m *machine) root() string { return filepath.Join(m.dir, "root") }

// start starts an agent. All agents before it must have been stopped or killed.
func (m *machine) start() {
	m.t.Helper()
	if m.agent != nil {
		m.t.Fatal("an agent runs already")
	}
	log := slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n, err := node.New(m.cfg, log)
	if err != nil {
		m.t.Fatal(err)
	}
	capacity := n.Capacity()
	m.cpus = capacity.Cpu().Value()
	l := &life{
		runtime: m.runtime.Connect(), cgroups: &memoryCgroups{of: m.cgroups, at: m.atCgroups},
		done: make(chan error, 1), watched: make(chan struct{}), crashed: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	var connection *cluster.Connection
	if m.api != nil {
		connection = &cluster.Connection{Conn: m.api.Conn(kube.Config{
			QPS:  -1,
			Wrap: func(next http.RoundTripper) http.RoundTripper { return line{l, next, m.atRequests} },
		})}
	}
	l.agent, err = agent.New(ctx, m.cfg, agent.Deps{
		Cluster: connection, Runtime: l.runtime, Cgroups: l.cgroups, Node: n,
		Metrics: metrics.New(nodeName, "test"), Events: events.New(nodeName), Logger: log, Sources: m.sources(),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.agent = l
	m.latest.Store(l)
	go func() { l.done <- l.agent.Run(ctx) }()
	go func() {
		defer close(l.watched)
		m.watch.run(ctx, l)
	}()
}

// line is an agent's line to the API server, which a crash of the agent cuts.
type line struct {
	life *life
	next http.RoundTripper
	at   func(after bool)
}

var errCut = errors.New("the agent that asks has crashed")

// RoundTrip sends a request unless the agent has crashed.
func (w line) RoundTrip(r *http.Request) (*http.Response, error) {
	isChange := w.at != nil && r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/pods/")
	if isChange {
		w.at(false)
	}
	if w.life.dead.Load() {
		return nil, errCut
	}
	resp, err := w.next.RoundTrip(r)
	if isChange {
		w.at(true)
	}
	if w.life.dead.Load() && err == nil {
		return nil, errors.Join(errCut, resp.Body.Close())
	}
	return resp, err
}

// stop ends the agent in the normal way. The agent may crash while it ends.
func (m *machine) stop() {
	m.t.Helper()
	l := m.agent
	if l == nil {
		return
	}
	switch err := m.end(); {
	case l.fell():
		m.restore()
	case err != nil && !errors.Is(err, context.Canceled):
		m.t.Errorf("the agent ended with: %v", err)
	}
}

// end waits for the agent's end and returns its error.
func (m *machine) end() error {
	l := m.agent
	m.agent = nil
	l.cancel()
	err := <-l.done
	<-l.watched
	return err
}

// kill ends the agent as kill -9 does.
func (m *machine) kill() {
	m.t.Helper()
	if m.agent == nil {
		return
	}
	m.crash(m.agent)
	m.bury()
}

// crash cuts an agent off from everything, so that nothing that the agent does from now on has an
// effect. The agent's own goroutines may call it.
func (m *machine) crash(l *life) {
	l.once.Do(func() {
		l.dead.Store(true)
		// The agent must not notice its death, and write it down, before its directories are gone.
		l.runtime.Freeze()
		l.cgroups.freeze(func() {
			if err := os.Rename(m.dir, m.dir+".away"); err != nil {
				m.t.Errorf("taking the agent's directories away: %v", err)
			}
		})
		l.runtime.Sever()
		close(l.crashed)
		l.cancel()
	})
}

// crashHere crashes the running agent in the agent's own goroutine. The goroutine goes on only when
// the test waits for the agent's end.
func (m *machine) crashHere() {
	m.crash(m.latest.Load())
}

// fell reports whether the agent crashed and bury was not called yet.
func (m *machine) fell() bool { return m.agent != nil && m.agent.fell() }

func (l *life) fell() bool {
	select {
	case <-l.crashed:
		return true
	default:
		return false
	}
}

// bury waits for the end of an agent that crashed, and gives its directories to the next agent.
func (m *machine) bury() {
	m.t.Helper()
	_ = m.end() // the error of a killed agent does not matter
	m.restore()
}

// restore puts back the directories that a crash took away, and removes what the killed agent has
// made and mounted since.
func (m *machine) restore() {
	m.t.Helper()
	m.unmount()
	if err := os.RemoveAll(m.dir); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(m.dir+".away", m.dir); err != nil {
		m.t.Fatal(err)
	}
}

// mounts returns what is mounted in the agents' directories, sorted.
func (m *machine) mounts() []string {
	m.t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		m.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], m.dir+"/") {
			out = append(out, fields[4])
		}
	}
	slices.Sort(out)
	return out
}

// unmount unmounts everything in the agents' directories.
func (m *machine) unmount() {
	m.t.Helper()
	for _, at := range slices.Backward(m.mounts()) {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			m.t.Errorf("unmount %s: %v", at, err)
		}
	}
}

// pods returns what the agent lists, nothing while no agent runs.
func (m *machine) pods() []*v1.Pod {
	if m.agent == nil {
		return nil
	}
	return m.agent.agent.Pods()
}

// pod returns the pod with a manifest's name, nil if there is none. If there are a predecessor and
// a successor, it returns the successor.
func (m *machine) pod(name string) *v1.Pod {
	for _, p := range m.pods() {
		if p.Name == name+"-"+nodeName {
			return p
		}
	}
	return nil
}

// leftovers lists what is still held anywhere.
func (m *machine) leftovers() []string {
	left := m.runtime.Leftovers()
	for _, uid := range m.cgroups.list() {
		left = append(left, "cgroup of pod "+string(uid))
	}
	for _, dir := range []string{"root/pods", "root/berth/pods", "logs", "links"} {
		entries, err := os.ReadDir(filepath.Join(m.dir, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = append(left, err.Error())
		}
		for _, e := range entries {
			left = append(left, filepath.Join(dir, e.Name()))
		}
	}
	for _, at := range m.mounts() {
		left = append(left, "mount "+at)
	}
	for _, p := range m.pods() {
		left = append(left, "pod "+p.Name+" is listed")
	}
	return left
}

// lostLinks returns the links to logs whose containers do not exist in the runtime.
func (m *machine) lostLinks() []string {
	entries, err := os.ReadDir(filepath.Join(m.dir, "links"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return []string{err.Error()}
	}
	var lost []string
	for _, e := range entries {
		if id, ok := cri.ParseLogSymlink(e.Name()); !ok || m.runtime.Container(id) == nil {
			lost = append(lost, e.Name())
		}
	}
	return lost
}

// check returns every violation so far.
func (m *machine) check() []string {
	return append(m.runtime.CheckInvariants(), m.watch.broken()...)
}

// until lets time go by until cond returns nil, for at most limit. It returns cond's last error.
func until(limit time.Duration, cond func() error) error {
	const step = 100 * time.Millisecond
	for waited := time.Duration(0); ; waited += step {
		synctest.Wait()
		err := cond()
		if err == nil || waited >= limit {
			return err
		}
		time.Sleep(step)
	}
}

// logBuffer keeps the agent's log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(b.buf.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// watch follows every pod's status over the lives of all agents.
type watch struct {
	mu   sync.Mutex
	seen map[types.UID]*seen
	bad  []string
}

// seen is what the watch has seen of a pod.
type seen struct {
	restarts map[string]int32
	terminal v1.PodPhase
	leaves   time.Time // the pod's deletion time, if it was last listed with one
	ended    bool      // the pod has come to its end: if it comes back, its counts start again
	anew     bool      // an operator has started the pod, whose end does not count any more
}

func newWatch() *watch {
	return &watch{seen: map[types.UID]*seen{}}
}

func (w *watch) run(ctx context.Context, l *life) {
	changed, stop := l.agent.WatchPods()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			if pods := l.agent.Pods(); !l.dead.Load() {
				w.see(pods)
			}
		}
	}
}

func (w *watch) see(pods []*v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	listed := map[types.UID]bool{}
	for _, p := range pods {
		listed[p.UID] = true
		was := w.seen[p.UID]
		if was == nil {
			was = &seen{}
			w.seen[p.UID] = was
		}
		wrong := was.against(p)
		// the pod came back after its end, so its counts start again; but a pod that ended by
		// itself keeps its end
		if wrong != "" && was.ended {
			*was = seen{terminal: was.terminal, anew: was.anew}
			wrong = was.against(p)
		}
		if wrong != "" {
			w.bad = append(w.bad, time.Now().Format(time.TimeOnly)+": "+wrong)
		}
		was.note(p)
	}
	for uid := range w.seen {
		if !listed[uid] && w.seen[uid].ended {
			delete(w.seen, uid)
		}
	}
}

// against returns what is wrong with the pod, compared with what was seen of it before; "" if
// nothing is.
func (s *seen) against(p *v1.Pod) string {
	if s.terminal != "" && !s.anew && p.Status.Phase != s.terminal && p.DeletionTimestamp == nil {
		return fmt.Sprintf("phase of pod %s went from %s to %s", p.Name, s.terminal, p.Status.Phase)
	}
	if at := p.DeletionTimestamp; at != nil && !s.leaves.IsZero() && !s.leaves.Equal(at.Time) {
		return fmt.Sprintf("deletion time of pod %s moved from %s to %s", p.Name, s.leaves, at)
	}
	for _, c := range statuses(p) {
		if c.RestartCount < s.restarts[c.Name] {
			return fmt.Sprintf("restart count of container %s of pod %s fell from %d to %d", c.Name, p.Name,
				s.restarts[c.Name], c.RestartCount)
		}
	}
	return ""
}

func (s *seen) note(p *v1.Pod) {
	switch {
	case p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed:
		s.terminal = p.Status.Phase
	case s.anew && p.DeletionTimestamp == nil:
		s.terminal, s.anew = "", false
	}
	s.leaves = time.Time{}
	if at := p.DeletionTimestamp; at != nil {
		s.leaves = at.Time
	}
	if s.restarts == nil {
		s.restarts = map[string]int32{}
	}
	for _, c := range statuses(p) {
		s.restarts[c.Name] = c.RestartCount
	}
}

// forget records that a pod has come to its end.
func (w *watch) forget(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was := w.seen[uid]; was != nil {
		was.ended = true
	}
}

// startAnew records that an operator starts a pod.
func (w *watch) startAnew(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if was := w.seen[uid]; was != nil {
		was.anew = was.terminal != ""
	}
}

func (w *watch) broken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.bad)
}
