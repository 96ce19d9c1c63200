package eviction

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/loglimit"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

const (
	// period is the time between two looks at the node (the kubelet's evictionMonitoringPeriod).
	period = 10 * time.Second
	// glance is the time between two glances, which can bring a look forward. One takes about a
	// millisecond of CPU on a node with 100 pods.
	glance = 3 * time.Second
	// endLimit is how long a look waits for the end of the pods that were evicted before it (the
	// kubelet's podCleanupTimeout), and endLook is the time between two looks at them.
	endLimit = 30 * time.Second
	endLook  = 200 * time.Millisecond
	// hardGrace is the grace, in seconds, of a pod that has to leave at once (the kubelet's
	// immediateEvictionGracePeriodSeconds).
	hardGrace = 1
)

// Config is the configuration of a manager. Make it with [ConfigFrom].
type Config struct {
	Thresholds []Threshold
	// Transition is how long a condition of the node stays after it was last observed.
	Transition time.Duration
	// MaxGrace bounds the grace, in seconds, of pods that leave because of a soft threshold.
	MaxGrace int64
	// StorageLimits says that limits of local storage are enforced.
	StorageLimits bool
	// Cluster says that the node has an API server: static pods are critical there.
	Cluster bool
	// KernelNotices is the file by which the kernel tells of a lack of memory; empty if it is not
	// watched.
	KernelNotices string
}

// ConfigFrom returns what a config says about eviction. cluster says that the node has an API
// server.
func ConfigFrom(k *kubeletconfigv1beta1.KubeletConfiguration, cluster bool) (Config, error) {
	thresholds, err := Thresholds(k)
	return Config{
		Thresholds:    thresholds,
		Transition:    k.EvictionPressureTransitionPeriod.Duration,
		MaxGrace:      int64(k.EvictionMaxPodGracePeriod),
		StorageLimits: k.LocalStorageCapacityIsolation == nil || *k.LocalStorageCapacityIsolation,
		Cluster:       cluster,
	}, err
}

// Stats is what a manager reads of the usage; *stats.Collector implements it.
type Stats interface {
	Node(ctx context.Context) stats.NodeUsage
	// Glance returns what can be read at once of what Node returns.
	Glance() stats.NodeUsage
	Storage(ctx context.Context, layers map[types.UID]bool) map[types.UID]*statsapi.PodStats
	Summary(ctx context.Context, onlyCPUAndMemory bool) *statsapi.Summary
}

// Pods has the operations on workers that a manager uses; *worker.Pool implements it.
type Pods interface {
	List() map[types.UID]worker.Entry
	Get(uid types.UID) (worker.Entry, bool)
	Stop(uid types.UID, stop worker.Stop)
	Remove(uid types.UID)
}

// Conditions returns the conditions of pressure that are true now; see [Pressure.Conditions].
func (m *Manager) Conditions() []v1.NodeConditionType { return m.deps.Pressure.Conditions() }

// Reclaimer removes what the node has without need, before a pod has to leave.
type Reclaimer interface {
	DeleteUnusedImages(ctx context.Context) error
	DeleteDeadContainers(ctx context.Context) error
	// DeleteContainersOf removes the dead containers of a pod that has ended, with their logs.
	DeleteContainersOf(ctx context.Context, uid types.UID) error
}

// Events records events; *events.Recorder implements it.
type Events interface {
	Annotated(pod *v1.Pod, annotations map[string]string, kind, reason, message string)
	Node(kind, reason, message string)
}

// Metrics counts evictions; *metrics.Set implements it.
type Metrics interface {
	Evicted(signal string)
	EvictionStatsAge(signal string, age time.Duration)
}

// Deps are what a manager works with.
type Deps struct {
	Stats Stats
	Pods  Pods
	// Allocated returns a pod with the resources that it was allocated.
	Allocated func(pod *v1.Pod) *v1.Pod
	// Pressure gets the node's conditions. Changed says that they are others now.
	Pressure *Pressure
	Changed  func()
	// Reclaimer is nil if nothing can be removed but pods.
	Reclaimer Reclaimer
	// Fitting returns those of these pods that the node has room for, all together.
	Fitting func(list []*v1.Pod) []*v1.Pod
	// Again says that a removed pod is wanted again, if its source has it still.
	Again   func()
	Events  Events
	Metrics Metrics
	Logger  *slog.Logger
}

// Manager evicts pods. Make it with [New].
type Manager struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	// wake asks for a look at the node before the period is over.
	wake notify.Signal

	// Only the loop uses the fields below.

	rules rules
	state state
	disks stats.Disks
	// stuck limits the log lines about a lack for which no pod may leave.
	stuck loglimit.Limiter
}

// New returns a manager; it does nothing before [Manager.Run].
func New(cfg Config, deps Deps) *Manager {
	m := &Manager{cfg: cfg, deps: deps, log: deps.Logger, wake: notify.New()}
	m.know(stats.Disks{})
	return m
}

// know takes over which file systems the node has.
func (m *Manager) know(d stats.Disks) {
	m.disks, m.state = d, state{}
	m.rules = rules{thresholds: withContainerFs(m.cfg.Thresholds, d), transition: m.cfg.Transition}
}

// Run looks at the node periodically, as soon as a glance at it finds a threshold crossed, when the
// kernel tells of a lack of memory, and as soon as evicted pods have ended, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	var notices sync.WaitGroup
	defer notices.Wait()
	if m.cfg.KernelNotices != "" && m.watchesMemory() {
		notices.Go(func() {
			if err := watch(ctx, m.cfg.KernelNotices, m.wake.Notify); err != nil {
				m.log.Info("the kernel tells of no lack of memory; the node is looked at periodically", "err", err)
			}
		})
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	glances := time.NewTicker(glance)
	defer glances.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-m.wake:
		case <-glances.C:
			if !m.crossed() {
				continue
			}
		}
		for {
			evicted := m.look(ctx)
			if len(evicted) == 0 {
				break
			}
			m.awaitEnd(ctx, evicted)
		}
		timer.Reset(period)
	}
}

// crossed reports whether a glance at the node finds a threshold met that was not at the last look.
func (m *Manager) crossed() bool {
	if len(m.rules.thresholds) == 0 {
		return false
	}
	usage := m.deps.Stats.Glance()
	return m.state.crossed(m.rules, observe(&usage))
}

// watchesMemory reports whether there is a threshold of memory.
func (m *Manager) watchesMemory() bool {
	return slices.ContainsFunc(m.cfg.Thresholds, func(t Threshold) bool {
		return t.Signal.condition() == v1.NodeMemoryPressure
	})
}

// look looks at the node once, and returns the pods that it asked to leave.
func (m *Manager) look(ctx context.Context) []types.UID {
	var due []Threshold
	var seen observations
	if len(m.cfg.Thresholds) > 0 {
		due, seen = m.judge(ctx)
	}
	if ctx.Err() != nil {
		return nil // what was read is not whole
	}
	m.revive()
	if m.cfg.StorageLimits {
		if evicted := m.enforceLimits(ctx); len(evicted) > 0 {
			return evicted
		}
	}
	if len(due) == 0 || ctx.Err() != nil {
		return nil
	}
	short := due[0].Signal.resource()
	m.deps.Events.Node(v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+string(short))
	if m.reclaim(ctx, due[0].Signal) {
		m.log.Info("the node has enough again without an eviction", "resource", short)
		return nil
	}
	return m.evictOne(ctx, due, seen)
}

// judge observes the node, publishes its conditions, and returns the thresholds that pods must be
// evicted for.
func (m *Manager) judge(ctx context.Context) ([]Threshold, observations) {
	usage := m.deps.Stats.Node(ctx)
	if ctx.Err() != nil {
		return nil, nil
	}
	if d := usage.Disks; d != nil && *d != m.disks {
		m.know(*d)
	}
	seen := observe(&usage)
	after, due, conditions := m.state.next(m.rules, seen, time.Now())
	m.state = after
	if m.deps.Pressure.set(conditions) {
		m.log.Info("the node's pressure has changed", "conditions", conditions)
		m.deps.Changed()
	}
	return due, seen
}

// evictOne asks the first pod of the ranking that may leave to leave.
func (m *Manager) evictOne(ctx context.Context, due []Threshold, seen observations) []types.UID {
	t := due[0]
	summary := m.deps.Stats.Summary(ctx, false)
	usage := make(map[types.UID]*statsapi.PodStats, len(summary.Pods))
	for i := range summary.Pods {
		usage[types.UID(summary.Pods[i].PodRef.UID)] = &summary.Pods[i]
	}
	var list []candidate
	for _, pod := range m.active() {
		list = append(list, candidate{pod: pod, stats: usage[pod.UID]})
	}
	rank(list, t.Signal, m.disks)
	for _, d := range due {
		if o, ok := seen[d.Signal]; ok {
			m.deps.Metrics.EvictionStatsAge(string(d.Signal), time.Since(o.at))
		}
	}
	for _, c := range list {
		message, annotations := describe(c, t.Signal.resource(), due, seen)
		stop := worker.Stop{
			Cause: worker.CauseEvicted, Reason: Reason, Message: message, Grace: m.grace(t, c.pod),
		}
		if m.evict(c.pod, t.Signal, stop, annotations) {
			return []types.UID{c.pod.UID}
		}
	}
	err := fmt.Errorf("%s is below its threshold, and none of the node's %d pods may leave", t.Signal, len(list))
	if m.stuck.Allow(err, time.Now()) {
		m.log.Error("no pod can be evicted", "err", err)
	}
	return nil
}

// grace returns the grace, in seconds, of a pod that leaves because of a threshold.
func (m *Manager) grace(t Threshold, pod *v1.Pod) *int64 {
	out := int64(hardGrace)
	if !t.hard() {
		out = m.cfg.MaxGrace
		if own := pod.Spec.TerminationGracePeriodSeconds; own != nil {
			out = min(out, *own)
		}
	}
	return &out
}

// enforceLimits asks all pods to leave that use more local storage than their limits allow.
func (m *Manager) enforceLimits(ctx context.Context) []types.UID {
	layers := map[types.UID]bool{}
	for _, pod := range m.active() {
		if has, ofLayers := limited(pod); has {
			layers[pod.UID] = ofLayers
		}
	}
	if len(layers) == 0 {
		return nil
	}
	usage := m.deps.Stats.Storage(ctx, layers)
	var evicted []types.UID
	for _, pod := range m.active() {
		s := usage[pod.UID]
		if s == nil {
			continue
		}
		grace := int64(hardGrace)
		limit, message, over := overLimit(candidate{pod: pod, stats: s}, m.disks)
		stop := worker.Stop{Cause: worker.CauseOverLimit, Reason: Reason, Message: message, Grace: &grace}
		if over && m.evict(pod, limit, stop, nil) {
			evicted = append(evicted, pod.UID)
		}
	}
	return evicted
}

// active returns the pods that hold something, with what they were allocated, by name.
func (m *Manager) active() []*v1.Pod {
	var out []*v1.Pod
	for _, e := range m.deps.Pods.List() {
		if !e.Waiting && e.Phase != worker.Terminated && !pods.RuntimeOnly(e.Pod) {
			out = append(out, m.deps.Allocated(e.Pod))
		}
	}
	slices.SortFunc(out, func(x, y *v1.Pod) int {
		switch {
		case pods.FullName(x) < pods.FullName(y):
			return -1
		case pods.FullName(x) > pods.FullName(y):
			return 1
		}
		return 0
	})
	return out
}

// evict asks a pod to leave. It returns false for a pod that the node must have, and for one that
// already leaves as soon as it can.
func (m *Manager) evict(pod *v1.Pod, s Signal, stop worker.Stop, annotations map[string]string) bool {
	if m.critical(pod) {
		m.log.Debug("a critical pod is not evicted", "pod", pods.FullName(pod), "uid", pod.UID, "signal", s)
		return false
	}
	e, ok := m.deps.Pods.Get(pod.UID)
	if !ok || e.Phase == worker.Terminated || e.Stop != nil && e.Stop.Grace != nil && *e.Stop.Grace <= *stop.Grace {
		return false
	}
	m.log.Warn("pod is evicted", "pod", pods.FullName(pod), "uid", pod.UID, "signal", s, "message", stop.Message)
	m.deps.Events.Annotated(pod, annotations, v1.EventTypeWarning, Reason, stop.Message)
	m.deps.Pods.Stop(pod.UID, stop)
	m.deps.Metrics.Evicted(string(s))
	return true
}

// critical reports whether the node must have a pod even under pressure. In a cluster this is the
// kubelet's rule. Without a cluster, a static pod is critical only by its priority: otherwise
// nothing could be evicted there.
func (m *Manager) critical(pod *v1.Pod) bool {
	if m.cfg.Cluster {
		return pods.IsCritical(pod)
	}
	return pods.Priority(pod) >= pods.Critical
}

// awaitEnd waits until nothing of the evicted pods is left on the node but records.
func (m *Manager) awaitEnd(ctx context.Context, evicted []types.UID) {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	for {
		evicted = slices.DeleteFunc(evicted, func(uid types.UID) bool {
			e, ok := m.deps.Pods.Get(uid)
			return !ok || e.Phase == worker.Terminated
		})
		if len(evicted) == 0 {
			return
		}
		if !retry.Sleep(ctx, endLook) {
			m.log.Warn("evicted pods did not end in time", "uids", evicted)
			return
		}
	}
}
