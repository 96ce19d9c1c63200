package shutdown

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/loglimit"
	"github.com/berthd/berth/internal/retry"
)

// nodeShutdown is the reason of the node's events about a shutdown, as the kubelet has it.
const nodeShutdown = "NodeShutdown"

// reconnect is the back-off while logind cannot be reached.
var reconnect = retry.Backoff{First: time.Second, Most: time.Minute}

// errBusGone ends a connection that logind, or the bus, has closed.
var errBusGone = errors.New("the connection with systemd-logind has ended")

// Config is the configuration of a manager. Make it with [ConfigFrom].
type Config struct {
	// Delay is the sum of the times of all classes of pods. If it is zero, the manager takes no
	// lock of logind, and pods end when systemd stops the agent.
	Delay time.Duration
	// StateFile has when the last shutdown began and ended.
	StateFile string
	// LogindConf is the drop-in of logind.conf that the manager writes if logind's delay is too
	// short.
	LogindConf string
}

// ConfigFrom returns what an agent's config says about shutdowns.
func ConfigFrom(cfg *configs.Config) Config {
	out := Config{StateFile: filepath.Join(cfg.RootDir, StateFile), LogindConf: LogindConf}
	if !cfg.GateEnabled("GracefulNodeShutdown") {
		return out
	}
	out.Delay = cfg.Kubelet.ShutdownGracePeriod.Duration
	if classes := cfg.Kubelet.ShutdownGracePeriodByPodPriority; len(classes) > 0 {
		out.Delay = 0
		for _, c := range classes {
			out.Delay += time.Duration(c.ShutdownGracePeriodSeconds) * time.Second
		}
	}
	return out
}

// Pods ends the node's pods; *drain.Drainer implements it.
type Pods interface {
	// Shutdown ends the pods, with time beyond their graces for what is left of them.
	// ShutdownInTime takes no longer than [Config].Delay.
	Shutdown(ctx context.Context) error
	ShutdownInTime(ctx context.Context) error
	// Resume lets the pods run again.
	Resume()
}

// Metrics has the times of shutdowns; *metrics.Set implements it.
type Metrics interface {
	// ShutdownTimes sets when the last shutdown began and ended; zero for never.
	ShutdownTimes(start, end time.Time)
}

// Deps are what a manager works with.
type Deps struct {
	Pods Pods
	// Connect connects with logind; nil on a machine whose logind is not asked.
	Connect func(ctx context.Context) (Bus, error)
	// Event records an event about the node.
	Event   func(kind, reason, message string)
	Metrics Metrics
	Logger  *slog.Logger
}

// Manager ends the node's pods when the machine shuts down. Make it with [New].
type Manager struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	// ending is held while pods are ended.
	ending chan struct{}

	mu sync.Mutex
	// now is the shutdown under way; zero if the machine does not shut down.
	now state
	// final says that systemd has stopped the agent: that shutdown is not cancelled.
	final bool
	lock  io.Closer

	// failing limits the log lines about a logind that cannot be reached. Only Run uses it.
	failing loglimit.Limiter
}

// New returns a manager; only [Manager.Run] speaks with logind.
func New(cfg Config, deps Deps) *Manager {
	return &Manager{cfg: cfg, deps: deps, log: deps.Logger, ending: make(chan struct{}, 1)}
}

// Shutdown ends the node's pods because systemd stops the agent and the machine shuts down. If
// logind's announcement is being worked on, Shutdown goes on with what that left.
func (m *Manager) Shutdown(ctx context.Context) error {
	m.mu.Lock()
	m.final = true
	m.mu.Unlock()
	return m.end(ctx, m.deps.Pods.Shutdown)
}

// end ends the pods, and records when this began and ended. Another end under way is waited for.
func (m *Manager) end(ctx context.Context, stop func(context.Context) error) error {
	select {
	case m.ending <- struct{}{}:
		defer func() { <-m.ending }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m.begun()
	err := stop(ctx)
	if ctx.Err() == nil {
		m.record(func(now *state) { now.End = time.Now() })
	}
	return err
}

// begun records the begin of a shutdown, once for each shutdown.
func (m *Manager) begun() {
	if m.announced() {
		return
	}
	m.deps.Event(v1.EventTypeNormal, nodeShutdown, "Shutdown manager detected shutdown event")
	m.record(func(now *state) { now.Start = time.Now() })
}

// record changes what is known of the shutdown under way, on the disk, too.
func (m *Manager) record(change func(now *state)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.now)
	m.deps.Metrics.ShutdownTimes(m.now.Start, m.now.End)
	if err := m.now.save(m.cfg.StateFile); err != nil {
		m.log.Error("the times of this shutdown are lost", "err", err)
	}
}

// Run takes a lock of logind, and ends the pods when logind announces a shutdown, until ctx ends.
// While logind cannot be reached, Run tries again.
func (m *Manager) Run(ctx context.Context) error {
	last, err := load(m.cfg.StateFile)
	if err != nil {
		m.log.Warn("the times of the last shutdown are not known", "err", err)
	}
	m.deps.Metrics.ShutdownTimes(last.Start, last.End)
	r := &reaction{manager: m}
	defer m.release()
	defer r.stop()
	for failures := 1; m.cfg.Delay > 0 && m.deps.Connect != nil; failures++ {
		worked, err := m.follow(ctx, r)
		if ctx.Err() != nil {
			return nil
		}
		if worked {
			failures = 1 // the failures before it are over
		}
		if !m.announced() && m.failing.Allow(err, time.Now()) { // systemd stops logind, too
			m.log.Warn("systemd-logind does not tell the agent of shutdowns: pods end when systemd stops the agent",
				"err", err)
		}
		if !reconnect.Wait(ctx, failures) {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// announced reports whether the machine shuts down, as far as the manager knows.
func (m *Manager) announced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.now.Start.IsZero()
}

// cancelled lets the pods run again, if a shutdown is under way that can be cancelled.
func (m *Manager) cancelled() {
	m.mu.Lock()
	was := !m.now.Start.IsZero() && !m.final
	if was {
		m.now = state{}
	}
	m.mu.Unlock()
	if was {
		m.deps.Event(v1.EventTypeNormal, nodeShutdown, "Shutdown manager detected shutdown cancellation")
		m.deps.Pods.Resume()
	}
}

// inhibit takes a lock, in the place of an older one.
func (m *Manager) inhibit(ctx context.Context, bus Bus) error {
	lock, err := bus.Inhibit(ctx)
	if err != nil {
		return err
	}
	m.hold(lock)
	return nil
}

// letShutDown gives the lock back when the pods have ended, or had their time.
func (m *Manager) letShutDown() {
	m.release()
	m.log.Info("systemd-logind waits no longer for this node's pods: the machine may shut down")
}

// release gives the lock back.
func (m *Manager) release() { m.hold(nil) }

// hold keeps a lock, and releases the one before it; nil keeps none.
func (m *Manager) hold(lock io.Closer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lock != nil {
		if err := m.lock.Close(); err != nil {
			m.log.Warn("the lock of systemd-logind not released", "err", err)
		}
	}
	m.lock = lock
}
