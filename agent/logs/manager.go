package logs

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/cri"
)

// Config says where logs are and how large they may get. Sizes are in bytes.
type Config struct {
	// Root is the directory of all pods' logs (podLogsDir).
	Root string
	// MaxSize is the size at which a log is rotated (containerLogMaxSize).
	MaxSize int64
	// MaxFiles is how many files a log has at most, the one that is written included (containerLogMaxFiles); at least 2.
	MaxFiles int
	// Interval is the longest time between two looks at a container that writes (containerLogMonitorInterval).
	Interval time.Duration
	// Workers is how many logs are rotated at once (containerLogMaxWorkers).
	Workers int
	// ContainerMax bounds all log files of one container, NodeMax those of all containers.
	ContainerMax, NodeMax int64
}

// Deps are what the manager works with.
type Deps struct {
	// Runtime reopens logs.
	Runtime interface {
		ReopenContainerLog(ctx context.Context, id string) error
	}
	Logger *slog.Logger
	// watch makes what tells of writes; nil means the kernel's inotify.
	watch func() (watcher, error)
}

// Container is one container of a pod and, where one runs, its instance.
type Container struct {
	Name string
	// ID is the running instance; empty where none runs.
	ID string
	// LogPath is the path of that instance's log.
	LogPath string
}

// Manager rotates the logs of the node's containers. Make it with [New].
type Manager struct {
	deps Deps
	log  *slog.Logger
	bell chan struct{}

	mu   sync.Mutex
	news map[types.UID]news
	// asked is a config that is to count from now on; nil where none is.
	asked *Config

	// All below is Run's.
	cfg     Config
	policy  policy
	pods    map[types.UID][]key
	sets    map[key]*set
	watches map[int32]key
	watcher watcher
	results chan result
	jobs    sync.WaitGroup
	// rotating and compressing count the jobs under way.
	rotating, compressing int
}

// news is what was last said of a pod; nil containers mean that it is gone.
type news struct {
	pod        cri.PodID
	containers []Container
	gone       bool
}

// New returns a manager that knows no logs yet.
func New(cfg Config, deps Deps) *Manager {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.watch == nil {
		deps.watch = func() (watcher, error) { return newInotify() }
	}
	return &Manager{
		cfg: cfg, deps: deps, log: deps.Logger, bell: make(chan struct{}, 1),
		policy: cfg.policy(),
		news:   map[types.UID]news{}, pods: map[types.UID][]key{}, sets: map[key]*set{}, watches: map[int32]key{}, results: make(chan result),
	}
}

// policy is what of a config the judging of logs takes.
func (c Config) policy() policy {
	return policy{size: c.MaxSize, files: max(2, c.MaxFiles), container: c.ContainerMax, node: c.NodeMax, interval: c.Interval}
}

// Set has another config count from now on, also for logs that are there; its Root must be the same.
func (m *Manager) Set(cfg Config) {
	m.mu.Lock()
	m.asked = &cfg
	m.mu.Unlock()
	m.ring()
}

// Track says which containers a pod has, and which of them run. It may be called after every pass over the pod.
func (m *Manager) Track(pod cri.PodID, containers []Container) {
	m.tell(pod.UID, news{pod: pod, containers: containers})
}

// Forget says that a pod and its logs are gone.
func (m *Manager) Forget(uid types.UID) { m.tell(uid, news{gone: true}) }

func (m *Manager) tell(uid types.UID, n news) {
	m.mu.Lock()
	m.news[uid] = n
	m.mu.Unlock()
	m.ring()
}

func (m *Manager) ring() {
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

// Run keeps the logs small until ctx ends. It is called once.
func (m *Manager) Run(ctx context.Context) error {
	w, err := m.deps.watch()
	if err != nil {
		m.log.Warn("Writes to logs are not told by the kernel: logs are looked at by the clock", "interval", m.cfg.Interval, "err", err)
		w = blind{}
	}
	m.watcher = w
	defer m.end()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.bell:
			m.hear()
		case written := <-w.events():
			m.written(written)
		case r := <-m.results:
			m.finished(r)
		case <-timer.C:
		}
		next := m.tend(ctx, time.Now())
		timer.Stop()
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// end gives everything back. Jobs end with Run's context.
func (m *Manager) end() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		m.jobs.Wait()
	}()
	for ended := false; !ended; {
		select {
		case <-m.results:
		case <-done:
			ended = true
		}
	}
	m.watcher.close()
	for _, s := range m.sets {
		s.close()
	}
}

// hear takes in what was said of pods, and another config.
func (m *Manager) hear() {
	m.mu.Lock()
	all, asked := m.news, m.asked
	m.news, m.asked = map[types.UID]news{}, nil
	m.mu.Unlock()
	if asked != nil {
		m.cfg, m.policy = *asked, asked.policy()
		for _, s := range m.sets {
			s.stale = true
		}
	}
	for uid, n := range all {
		if n.gone {
			for _, k := range m.pods[uid] {
				m.forget(m.sets[k])
				delete(m.sets, k)
			}
			delete(m.pods, uid)
			continue
		}
		m.place(uid, n)
	}
}

// place brings the sets of a pod up to what was said of it.
func (m *Manager) place(uid types.UID, n news) {
	dir := filepath.Base(cri.PodLogDir(m.cfg.Root, n.pod))
	for _, c := range n.containers {
		k := key(filepath.Join(dir, c.Name))
		if m.sets[k] == nil {
			m.sets[k] = &set{key: k, stale: true}
			m.pods[uid] = append(m.pods[uid], k)
		}
		m.instance(m.sets[k], c)
	}
	for _, k := range m.pods[uid] {
		if !slices.ContainsFunc(n.containers, func(c Container) bool { return c.Name == filepath.Base(string(k)) }) {
			m.instance(m.sets[k], Container{})
		}
	}
}

// instance takes in which instance of a container runs.
func (m *Manager) instance(s *set, c Container) {
	if c.LogPath == "" {
		c.ID = "" // without a log it is as good as none
	}
	if s.id == c.ID {
		return
	}
	m.unwatch(s)
	s.id, s.live, s.stale = c.ID, "", true
	s.size, s.rate, s.due, s.failures, s.retry = 0, 0, time.Time{}, 0, time.Time{}
	if c.ID != "" {
		s.live = filepath.Base(c.LogPath)
	}
}

// forget drops what is held for a set.
func (m *Manager) forget(s *set) {
	m.unwatch(s)
	if s.cancel != nil {
		s.cancel()
	}
	s.close()
}

// written notes that logs were written to.
func (m *Manager) written(watches []int32) {
	for _, w := range watches {
		if s := m.sets[m.watches[w]]; s != nil && s.watch == w {
			delete(m.watches, w)
			s.watch, s.due = noWatch, time.Now()
		}
	}
}

func (m *Manager) unwatch(s *set) {
	if s.watch != noWatch {
		m.watcher.remove(s.watch)
		delete(m.watches, s.watch)
		s.watch = noWatch
	}
}

// total is what all logs take, as far as is known.
func (m *Manager) total() (bytes int64) {
	for _, s := range m.sets {
		bytes += s.total()
	}
	return bytes
}
