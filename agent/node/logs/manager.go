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
	"github.com/berthd/berth/internal/notify"
)

// Config says where logs are and how large they may become. Sizes are in bytes.
type Config struct {
	// Root is the directory of all pods' logs (podLogsDir).
	Root string
	// MaxSize is the size at which a log is rotated (containerLogMaxSize).
	MaxSize int64
	// MaxFiles is the largest number of files of a log, with the current one
	// (containerLogMaxFiles); at least 2.
	MaxFiles int
	// Interval is the longest time between two checks of a container that writes
	// (containerLogMonitorInterval).
	Interval time.Duration
	// Workers is how many logs are rotated at the same time (containerLogMaxWorkers).
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
	// watch makes the watcher of writes; nil means the kernel's inotify.
	watch func() (watcher, error)
}

// Container is one container of a pod and its running instance, if there is one.
type Container struct {
	Name string
	// ID is the running instance; empty if none runs.
	ID string
	// LogPath is the path of that instance's log.
	LogPath string
}

// Manager rotates the logs of the node's containers. Make it with [New].
type Manager struct {
	deps Deps
	log  *slog.Logger
	// changed is notified of new reports and of a new config.
	changed notify.Signal

	mu      sync.Mutex
	reports map[types.UID]report
	// asked is the next config; nil if there is none.
	asked *Config

	// Only Run uses the fields below.
	cfg     Config
	policy  policy
	pods    map[types.UID][]key
	sets    map[key]*set
	watches map[int32]key
	watcher watcher
	results chan result
	jobs    sync.WaitGroup
	// rotating and compressing count the running jobs.
	rotating, compressing int
}

// report is the last report about a pod.
type report struct {
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
		cfg:     cfg,
		deps:    deps,
		log:     deps.Logger,
		changed: notify.New(),
		policy:  cfg.policy(),
		reports: map[types.UID]report{},
		pods:    map[types.UID][]key{},
		sets:    map[key]*set{},
		watches: map[int32]key{},
		results: make(chan result),
	}
}

// policy returns the part of a config that decides about logs.
func (c Config) policy() policy {
	return policy{
		size:      c.MaxSize,
		files:     max(2, c.MaxFiles),
		container: c.ContainerMax,
		node:      c.NodeMax,
		interval:  c.Interval,
	}
}

// Set sets the config from now on, also for existing logs. Root must stay the same.
func (m *Manager) Set(cfg Config) {
	m.mu.Lock()
	m.asked = &cfg
	m.mu.Unlock()
	m.changed.Notify()
}

// Rotates is true: the manager rotates logs.
func (m *Manager) Rotates() bool { return true }

// Track reports which containers a pod has, and which of them run. It may be called after every
// sync of the pod.
func (m *Manager) Track(pod cri.PodID, containers []Container) {
	m.report(pod.UID, report{pod: pod, containers: containers})
}

// Forget reports that a pod and its logs are gone.
func (m *Manager) Forget(uid types.UID) { m.report(uid, report{gone: true}) }

func (m *Manager) report(uid types.UID, r report) {
	m.mu.Lock()
	m.reports[uid] = r
	m.mu.Unlock()
	m.changed.Notify()
}

// Run keeps the logs small until ctx ends. It is called once.
func (m *Manager) Run(ctx context.Context) error {
	w, err := m.deps.watch()
	if err != nil {
		m.log.Warn("The kernel gives no notice of writes to logs: logs are looked at by the clock",
			"interval", m.cfg.Interval, "err", err)
		w = noWatcher{}
	}
	m.watcher = w
	defer m.end()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
			m.takeReports()
		case written := <-w.events():
			m.written(written)
		case r := <-m.results:
			m.finished(r)
		case <-timer.C:
		}
		next := m.sync(ctx, time.Now())
		timer.Stop()
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// end releases everything. The jobs end with Run's context.
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

// takeReports applies the reports about pods, and a new config.
func (m *Manager) takeReports() {
	m.mu.Lock()
	all, asked := m.reports, m.asked
	m.reports, m.asked = map[types.UID]report{}, nil
	m.mu.Unlock()
	if asked != nil {
		m.cfg, m.policy = *asked, asked.policy()
		for _, s := range m.sets {
			s.stale = true
		}
	}
	for uid, r := range all {
		if r.gone {
			for _, k := range m.pods[uid] {
				m.drop(m.sets[k])
				delete(m.sets, k)
			}
			delete(m.pods, uid)
			continue
		}
		m.place(uid, r)
	}
}

// place updates the sets of a pod to its report.
func (m *Manager) place(uid types.UID, r report) {
	dir := filepath.Base(cri.PodLogDir(m.cfg.Root, r.pod))
	for _, c := range r.containers {
		k := key(filepath.Join(dir, c.Name))
		if m.sets[k] == nil {
			m.sets[k] = &set{key: k, stale: true}
			m.pods[uid] = append(m.pods[uid], k)
		}
		m.instance(m.sets[k], c)
	}
	for _, k := range m.pods[uid] {
		if !slices.ContainsFunc(r.containers, func(c Container) bool { return c.Name == filepath.Base(string(k)) }) {
			m.instance(m.sets[k], Container{})
		}
	}
}

// instance records which instance of a container runs.
func (m *Manager) instance(s *set, c Container) {
	if c.LogPath == "" {
		c.ID = "" // an instance without a log needs no rotation
	}
	if s.id == c.ID {
		return
	}
	m.unwatch(s)
	s.id, s.live, s.stale = c.ID, "", true
	s.size, s.rate, s.due, s.failures, s.retryAt = 0, 0, time.Time{}, 0, time.Time{}
	if c.ID != "" {
		s.live = filepath.Base(c.LogPath)
	}
}

// drop releases what a set holds.
func (m *Manager) drop(s *set) {
	m.unwatch(s)
	if s.cancel != nil {
		s.cancel()
	}
	s.close()
}

// written records that logs were written to.
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

// total returns the size of all logs, as far as it is known.
func (m *Manager) total() (bytes int64) {
	for _, s := range m.sets {
		bytes += s.total()
	}
	return bytes
}
