package cpus

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berthd/berth/agent/node/cpus/state"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/pods"
)

// Metrics are the manager's metrics.
type Metrics interface {
	// CPUsPinned counts a container that asked for CPUs of its own.
	CPUsPinned(failed bool)
	// CPUsShared says how many CPUs containers have for themselves, and how many they share.
	CPUsShared(exclusive, shared int)
	// CPUsOnNode says how many CPUs of a NUMA node containers have for themselves.
	CPUsOnNode(node, exclusive int)
	// CPUsAlignable makes the counts of CPUsAligned exist before there is anything to count.
	CPUsAlignable()
	// CPUsAligned counts a container that got whole cores ("physical_cpu") or CPUs of one last-level
	// cache ("uncore_cache"), or that could not get them so, although the config demands it.
	CPUsAligned(boundary string, failed bool)
	podlevel.Metrics
}

// Deps are what a manager calls.
type Deps struct {
	// Holders returns the pods that have not ended: true for those that are being ended. known is
	// false while pods of an earlier run may be missing: then nobody loses CPUs.
	Holders func() (holders map[types.UID]bool, known bool)
	Runtime Runtime
	// Instances returns the containers that run.
	Instances func() []Instance
	// Event records an event about the node.
	Event   func(kind, reason, message string)
	Metrics Metrics
	Logger  *slog.Logger
}

// Manager gives containers their CPUs. Make it with [New].
type Manager struct {
	cfg  Config
	deps Deps
	// reserved is kept from those who want CPUs for themselves.
	reserved cpuset.CPUSet
	changed  notify.Signal
	// last is what running containers have, by id; only Run uses it.
	last map[string]string

	mu       sync.Mutex
	shared   cpuset.CPUSet
	assigned map[types.UID]map[string]cpuset.CPUSet
	// pods are the CPUs of pods as a whole, of which assigned has the parts of their containers.
	pods map[types.UID]cpuset.CPUSet
	// made is what containers got at their last creation, by pod and name.
	made map[types.UID]map[string]string
}

// New returns a manager with what the state file has. A file that does not fit the machine or the
// policy is reported, and replaced.
func New(cfg Config, deps Deps) (*Manager, error) {
	m := &Manager{
		cfg: cfg, deps: deps, changed: notify.New(), last: map[string]string{},
		assigned: map[types.UID]map[string]cpuset.CPUSet{}, pods: map[types.UID]cpuset.CPUSet{},
		made: map[types.UID]map[string]string{},
	}
	if m.Static() {
		m.reserved = cfg.Reserved
		if m.reserved.IsEmpty() {
			var err error
			if m.reserved, err = cfg.Machine.Take(cfg.Machine.Set(), cfg.ReservedCount, cfg.Choose); err != nil {
				return nil, fmt.Errorf("cpuManagerPolicy static: reserving %d CPUs: %w", cfg.ReservedCount, err)
			}
		}
		m.shared = m.usable()
		deps.Metrics.CPUsAlignable()
	}
	err := m.restore()
	if err != nil {
		deps.Logger.Error("which containers have CPUs of their own is not known: they share until they start again", "err",
			err)
		deps.Event(v1.EventTypeWarning, "CPUManagerStateUnusable", err.Error())
	}
	m.saved()
	return m, nil
}

// Static reports whether the policy is static.
func (m *Manager) Static() bool { return m.cfg.Policy == policyStatic }

// usable returns the CPUs that pods may run on.
func (m *Manager) usable() cpuset.CPUSet {
	if m.cfg.Strict {
		return m.cfg.Machine.Set().Difference(m.reserved)
	}
	return m.cfg.Machine.Set()
}

// restore takes over the state file.
func (m *Manager) restore() error {
	s, err := state.Read(m.cfg.File)
	if err != nil || s == nil || s.Policy != m.cfg.Policy || !m.Static() {
		return err
	}
	if !m.cfg.Rules.Managed {
		m.unite(s)
	}
	all := s.Shared
	assigned, whole := map[types.UID]map[string]cpuset.CPUSet{}, map[types.UID]cpuset.CPUSet{}
	for uid, set := range s.Pods {
		whole[types.UID(uid)], assigned[types.UID(uid)] = set, map[string]cpuset.CPUSet{}
		all = all.Union(set)
		if both := set.Intersection(s.Shared); !both.IsEmpty() {
			return fmt.Errorf("%s: pod %s has the CPUs %s, which others share", m.cfg.File, uid, both)
		}
	}
	for uid, containers := range s.Assigned {
		assigned[types.UID(uid)] = containers
		for name, set := range containers {
			if both := set.Intersection(s.Shared); !both.IsEmpty() {
				return fmt.Errorf("%s: pod %s, container %s has the CPUs %s, which others share", m.cfg.File, uid, name, both)
			}
			all = all.Union(set)
		}
	}
	if want := m.usable(); !all.Equals(want) {
		return fmt.Errorf("%s is about the CPUs %s, but pods may run on %s", m.cfg.File, all, want)
	}
	if lost := m.reserved.Difference(s.Shared); !lost.IsEmpty() && !m.cfg.Strict {
		return fmt.Errorf("%s: containers have the reserved CPUs %s", m.cfg.File, lost)
	}
	m.shared, m.assigned, m.pods = s.Shared, assigned, whole
	return nil
}

// unite makes the pods of a file that have CPUs as a whole share like all others, because pods
// cannot have any as a whole.
func (m *Manager) unite(s *state.State) {
	for uid, set := range s.Pods {
		m.deps.Logger.Warn("the feature gate PodLevelResourceManagers is off: the containers of a pod share the node's "+
			"CPUs", "uid", uid, "had", set.String())
		s.Shared = s.Shared.Union(set)
		delete(s.Assigned, uid)
	}
	s.Pods = nil
}

// save writes the state file; m.mu is held, or nobody else knows m yet.
func (m *Manager) save() error {
	s := state.State{Policy: m.cfg.Policy, Shared: m.shared, Assigned: map[string]map[string]cpuset.CPUSet{}}
	if m.cfg.Rules.Managed {
		s.Pods = map[string]cpuset.CPUSet{}
	}
	for uid, set := range m.pods {
		s.Pods[string(uid)] = set
	}
	exclusive := cpuset.New()
	for uid, containers := range m.assigned {
		s.Assigned[string(uid)] = containers
		exclusive = exclusive.Union(m.all(uid))
	}
	if m.Static() {
		m.deps.Metrics.CPUsShared(exclusive.Size(), m.shared.Difference(m.reserved).Size())
		for _, n := range m.nodes(m.cfg.Machine.Set()).Nodes() {
			m.deps.Metrics.CPUsOnNode(n, exclusive.Intersection(m.within(topology.MaskOf(n))).Size())
		}
	}
	return state.Write(m.cfg.File, s)
}

// all returns all CPUs of a pod; m.mu is held, or nobody else knows m yet.
func (m *Manager) all(uid types.UID) cpuset.CPUSet {
	return m.pods[uid].Union(slices.Collect(maps.Values(m.assigned[uid]))...)
}

// exclusive returns how many CPUs a container gets for itself; 0 if it shares.
func (m *Manager) exclusive(pod *v1.Pod, c *v1.Container) int {
	if !m.cfg.Rules.Own(pod, c) {
		return 0
	}
	return integer(c.Resources.Requests.Cpu())
}

// integer returns a whole number of CPUs; 0 if the amount is none.
func integer(amount *resource.Quantity) int {
	if amount.Value()*1000 != amount.MilliValue() {
		return 0
	}
	return int(amount.Value())
}

// Wants reports whether a pod or a container of it gets CPUs for itself.
func (m *Manager) Wants(pod *v1.Pod) bool {
	if m.Static() && m.cfg.Rules.Whole(pod) {
		return m.whole(pod) > 0
	}
	if m.Static() {
		for c := range pods.Starting(pod) {
			if m.exclusive(pod, c) > 0 {
				return true
			}
		}
	}
	return false
}

// aligned returns why that many CPUs cannot be whole cores, if they have to be.
func (m *Manager) aligned(count int) error {
	perCore := m.cfg.Machine.PerCore()
	switch free := m.shared.Difference(m.cfg.Machine.Cores(m.reserved)).Size(); {
	case !m.cfg.Choose.WholeCores:
		return nil
	case count%perCore != 0:
		return &SMTAlignmentError{fmt.Sprintf("requested %d cpus not multiple cpus per core = %d", count, perCore)}
	case count > free:
		return &SMTAlignmentError{fmt.Sprintf("not enough free physical CPUs: available physical CPUs = %d, "+
			"requested CPUs = %d, CPUs per core = %d", free, count, perCore)}
	}
	return nil
}

// leaving returns the CPUs of the pods that are being ended; m.mu is held.
func (m *Manager) leaving(holders map[types.UID]bool) cpuset.CPUSet {
	out := cpuset.New()
	for uid := range m.assigned {
		if holders[uid] {
			out = out.Union(m.all(uid))
		}
	}
	return out
}

// Leaving reports whether pods that are being ended have CPUs.
func (m *Manager) Leaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	holders, _ := m.deps.Holders()
	return !m.leaving(holders).IsEmpty()
}

// forgetEnded takes the CPUs from the pods that have ended, except one pod; m.mu is held, so that
// no pod gets CPUs that the list of pods does not have yet.
func (m *Manager) forgetEnded(but types.UID) {
	holders, known := m.deps.Holders()
	ended := false
	for uid := range m.assigned {
		if _, holds := holders[uid]; known && !holds && uid != but {
			ended = m.free(uid) || ended
		}
	}
	if ended {
		m.changed.Notify()
		m.saved()
	}
}

// free gives the CPUs of a pod back to those who share; m.mu is held. It reports whether the pod
// had any.
func (m *Manager) free(uid types.UID) bool {
	_, had := m.assigned[uid]
	m.shared = m.shared.Union(m.all(uid))
	delete(m.assigned, uid)
	delete(m.pods, uid)
	delete(m.made, uid)
	return had
}

// Release takes the CPUs from a pod that has ended or was not admitted.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.free(uid) {
		return
	}
	m.changed.Notify()
	m.saved()
}

// saved writes the state file where nobody waits for it: the next write makes good if this one
// fails. m.mu is held, or nobody else has the manager yet.
func (m *Manager) saved() {
	if err := m.save(); err != nil {
		m.deps.Logger.Error("the CPUs of containers are not on the disk", "err", err)
	}
}

// Set returns the CPUs that a container is made with, and notes them; empty for any CPU. A
// container that has none of its own yet, because its pod was admitted under another policy, gets
// them now.
func (m *Manager) Set(pod *v1.Pod, c *v1.Container) (cpuset.CPUSet, error) {
	if !m.Static() {
		return cpuset.New(), nil
	}
	if err := m.allocateMissing(pod); err != nil {
		return cpuset.New(), err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	set := m.of(pod.UID, c.Name)
	if m.made[pod.UID] == nil {
		m.made[pod.UID] = map[string]string{}
	}
	m.made[pod.UID][c.Name] = set.String()
	return set, nil
}

// of returns the CPUs of a container; m.mu is held.
func (m *Manager) of(uid types.UID, container string) cpuset.CPUSet {
	if set, has := m.assigned[uid][container]; has {
		return set
	}
	return m.shared
}

// Held returns the CPUs that a container has for itself, and Allocatable those that containers can
// have, for the pod resources API.
func (m *Manager) Held(uid types.UID, container string) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return ids(m.assigned[uid][container])
}

// Allocatable returns the CPUs that are not reserved; none under the policy none.
func (m *Manager) Allocatable() []int64 {
	if !m.Static() {
		return nil
	}
	return ids(m.cfg.Machine.Set().Difference(m.reserved))
}

func ids(set cpuset.CPUSet) []int64 {
	var out []int64
	for _, id := range set.List() {
		out = append(out, int64(id))
	}
	return out
}
