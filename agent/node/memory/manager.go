package memory

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berthd/berth/agent/node/memory/state"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
)

// Metrics are the manager's metrics.
type Metrics interface {
	// MemoryPinned counts a container that asked for memory of certain NUMA nodes.
	MemoryPinned(failed bool)
	podlevel.Metrics
}

// Deps are what a manager calls.
type Deps struct {
	// Holders returns the pods that have not ended: true for those that are being ended. known is
	// false while pods of an earlier run may be missing: then nobody loses memory.
	Holders func() (holders map[types.UID]bool, known bool)
	// Event records an event about the node.
	Event   func(kind, reason, message string)
	Metrics Metrics
	Logger  *slog.Logger
}

// Manager gives containers their memory. Make it with [New].
type Manager struct {
	cfg  Config
	deps Deps

	mu       sync.Mutex
	assigned map[types.UID]map[string][]state.Block
	// pods are the blocks of pods as a whole, of which assigned has the parts of their containers.
	pods map[types.UID][]state.Block
	// machine is what the NUMA nodes have left beside what is assigned.
	machine state.NUMANodeMap
}

// New returns a manager with what the state file has. A file that does not fit the machine or the
// policy is reported, and replaced.
func New(cfg Config, deps Deps) *Manager {
	m := &Manager{cfg: cfg, deps: deps}
	if err := m.restore(); err != nil {
		deps.Logger.Error("which containers have memory of which NUMA nodes is not known: they may use all memory until "+
			"they start again", "err", err)
		deps.Event(v1.EventTypeWarning, "MemoryManagerStateUnusable", err.Error())
	}
	m.saved()
	return m
}

// Static reports whether the policy is Static.
func (m *Manager) Static() bool { return m.cfg.Policy == policyStatic }

// restore takes over the state file.
func (m *Manager) restore() error {
	m.assigned, m.pods = map[types.UID]map[string][]state.Block{}, map[types.UID][]state.Block{}
	m.machine = m.cfg.Machine.tables(m.cfg.Reserved)
	s, err := state.Read(m.cfg.File)
	if err != nil || s == nil || s.PolicyName != m.cfg.Policy || !m.Static() {
		return err
	}
	if !m.cfg.Rules.Managed {
		m.unite(s)
	}
	next := m.cfg.Machine.tables(m.cfg.Reserved)
	for uid, entry := range s.PodEntries {
		if err := assign(next, entry.MemoryBlocks); err != nil {
			return fmt.Errorf("%s: pod %s: %w", m.cfg.File, uid, err)
		}
	}
	for uid, containers := range s.Entries {
		if _, whole := s.PodEntries[uid]; whole {
			continue
		}
		for name, blocks := range containers {
			if err := assign(next, blocks); err != nil {
				return fmt.Errorf("%s: container %s of pod %s: %w", m.cfg.File, name, uid, err)
			}
		}
	}
	if err := alike(s.MachineState, next); err != nil {
		return fmt.Errorf("%s: %w", m.cfg.File, err)
	}
	for uid, containers := range s.Entries {
		m.assigned[types.UID(uid)] = containers
	}
	for uid, entry := range s.PodEntries {
		uid := types.UID(uid)
		if m.pods[uid] = entry.MemoryBlocks; m.assigned[uid] == nil {
			m.assigned[uid] = map[string][]state.Block{}
		}
	}
	m.machine = next
	return nil
}

// unite takes their memory from the pods of a file that have some as a whole, because pods cannot
// have any as a whole: their containers may use all memory.
func (m *Manager) unite(s *state.MemoryManagerCheckpoint) {
	for uid := range s.PodEntries {
		m.deps.Logger.Warn("the feature gate PodLevelResourceManagers is off: the containers of a pod may use the "+
			"memory of all NUMA nodes when they start again", "uid", uid)
		delete(s.Entries, uid)
	}
	s.PodEntries = nil
}

// alike returns why the machine of a file is not this one: its NUMA nodes have other amounts, or
// other amounts are kept for the system.
func alike(file, machine state.NUMANodeMap) error {
	if len(file) != len(machine) {
		return fmt.Errorf("it is about %d NUMA nodes, but the machine has %d", len(file), len(machine))
	}
	for n, has := range machine {
		for name, t := range has.MemoryMap {
			was := (*state.MemoryTable)(nil)
			if file[n] != nil {
				was = file[n].MemoryMap[name]
			}
			if was == nil || was.TotalMemSize != t.TotalMemSize || was.Allocatable != t.Allocatable {
				return fmt.Errorf("NUMA node %d has another amount of %s than when it was written", n, name)
			}
		}
	}
	return nil
}

// save writes the state file; m.mu is held, or nobody else knows m yet.
func (m *Manager) save() error {
	entries := state.ContainerMemoryAssignments{}
	for uid, containers := range m.assigned {
		entries[string(uid)] = containers
	}
	c := state.MemoryManagerCheckpoint{PolicyName: m.cfg.Policy, MachineState: m.machine, Entries: entries}
	if m.cfg.Rules.Managed {
		c.PodEntries = state.PodMemoryAssignments{}
	}
	for uid, blocks := range m.pods {
		c.PodEntries[string(uid)] = state.PodEntry{MemoryBlocks: blocks}
	}
	return state.Write(m.cfg.File, c)
}

// request returns which memory a container gets of certain NUMA nodes; nothing if it may use all.
func (m *Manager) request(pod *v1.Pod, c *v1.Container) amounts {
	if !m.cfg.Rules.Own(pod, c) {
		return nil
	}
	return memoryOf(c.Resources.Requests)
}

// memoryOf returns the memory of a list of resources.
func memoryOf(list v1.ResourceList) amounts {
	out := amounts{}
	for name, amount := range list {
		if isMemory(name) && !amount.IsZero() {
			out[name] = uint64(amount.Value())
		}
	}
	return out
}

// Wants reports whether a pod or a container of it gets memory of certain NUMA nodes.
func (m *Manager) Wants(pod *v1.Pod) bool {
	if m.Static() && m.cfg.Rules.Whole(pod) {
		return len(m.whole(pod)) > 0
	}
	if m.Static() {
		for c := range pods.Starting(pod) {
			if len(m.request(pod, c)) > 0 {
				return true
			}
		}
	}
	return false
}

// forgetEnded takes the memory from the pods that have ended, except one pod; m.mu is held, so that
// no pod gets memory that the list of pods does not have yet.
func (m *Manager) forgetEnded(but types.UID) {
	holders, known := m.deps.Holders()
	ended := false
	for uid := range m.assigned {
		if _, holds := holders[uid]; known && !holds && uid != but {
			ended = m.free(uid) || ended
		}
	}
	if ended {
		m.saved()
	}
}

// free gives the memory of a pod back; m.mu is held. It reports whether the pod had any.
func (m *Manager) free(uid types.UID) bool {
	containers, had := m.assigned[uid]
	for name := range containers {
		m.freeContainer(uid, name)
	}
	for _, b := range m.pods[uid] {
		giveBack(m.machine, b)
	}
	delete(m.assigned, uid)
	delete(m.pods, uid)
	return had
}

// freeContainer is free for one container. The part of a whole pod's memory stays the pod's.
func (m *Manager) freeContainer(uid types.UID, name string) bool {
	blocks, had := m.assigned[uid][name]
	if _, whole := m.pods[uid]; !whole {
		for _, b := range blocks {
			giveBack(m.machine, b)
		}
	}
	delete(m.assigned[uid], name)
	return had
}

// saved writes the state file where nobody waits for it: the next write makes good if this one
// fails. m.mu is held, or nobody else has the manager yet.
func (m *Manager) saved() {
	if err := m.save(); err != nil {
		m.deps.Logger.Error("the NUMA nodes of containers' memory are not on the disk", "err", err)
	}
}

// Release takes the memory from a pod that has ended or was not admitted.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.free(uid) {
		m.saved()
	}
}

// Leaving reports whether pods that are being ended have memory.
func (m *Manager) Leaving() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.gone()) > 0
}

// gone returns what pods have that are being ended; m.mu is held.
func (m *Manager) gone() amounts {
	holders, _ := m.deps.Holders()
	out := amounts{}
	for uid, containers := range m.assigned {
		if !holders[uid] {
			continue
		}
		if whole, has := m.pods[uid]; has {
			containers = map[string][]state.Block{"": whole}
		}
		for _, blocks := range containers {
			for _, b := range blocks {
				out[b.Type] += b.Size
			}
		}
	}
	return out
}

// Start returns the NUMA nodes whose memory a container that is going to start may use, as "0,1";
// empty for all. The pod's init containers that have ended lose their memory, as with a kubelet. A
// pod that has no memory yet, because it was admitted under another policy, gets it now.
func (m *Manager) Start(pod *v1.Pod, c *v1.Container) (string, error) {
	ended := pods.EndedBefore(pod, c.Name)
	if err := m.allocateMissing(pod, ended); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := false
	for _, name := range ended {
		changed = m.freeContainer(pod.UID, name) || changed
	}
	if changed {
		m.saved()
	}
	return m.nodes(pod.UID, c.Name), nil
}

// allocateMissing gives a pod that has no memory the memory of its containers but those that have
// ended.
func (m *Manager) allocateMissing(pod *v1.Pod, ended []string) error {
	m.mu.Lock()
	_, has := m.assigned[pod.UID]
	m.mu.Unlock()
	if has || !m.Wants(pod) {
		return nil
	}
	p := m.Begin(pod)
	if len(m.whole(pod)) > 0 {
		if err := p.AllocatePod(context.Background(), topology.Hint{}); err != nil {
			return fmt.Errorf("giving the pod %s its memory: %w", pods.FullName(pod), err)
		}
		return nil
	}
	for c, ends := range pods.Starting(pod) {
		if slices.Contains(ended, c.Name) {
			continue
		}
		if err := p.Allocate(context.Background(), c, ends, topology.Hint{}); err != nil {
			m.Release(pod.UID)
			return fmt.Errorf("giving the container %s its memory: %w", c.Name, err)
		}
	}
	return nil
}

// nodes returns the NUMA nodes that a container has memory of, as "0,1"; m.mu is held.
func (m *Manager) nodes(uid types.UID, container string) string {
	var nodes topology.Mask
	for _, b := range m.assigned[uid][container] {
		nodes |= topology.MaskOf(b.NUMAAffinity...)
	}
	var out []string
	for _, n := range nodes.Nodes() {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, ",")
}

// Held returns the memory that a container has, for the pod resources API.
func (m *Manager) Held(uid types.UID, container string) []*resourcesapi.ContainerMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*resourcesapi.ContainerMemory
	for _, b := range m.assigned[uid][container] {
		out = append(out, told(b))
	}
	return out
}

// Allocatable returns the memory of each NUMA node that containers can have, for the pod resources
// API; none under the policy None.
func (m *Manager) Allocatable() []*resourcesapi.ContainerMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*resourcesapi.ContainerMemory
	for _, n := range slices.Sorted(maps.Keys(m.machine)) {
		for _, name := range slices.Sorted(maps.Keys(m.machine[n].MemoryMap)) {
			if t := m.machine[n].MemoryMap[name]; t.Allocatable > 0 {
				out = append(out, told(state.Block{NUMAAffinity: []int{n}, Type: name, Size: t.Allocatable}))
			}
		}
	}
	return out
}

func told(b state.Block) *resourcesapi.ContainerMemory {
	out := &resourcesapi.ContainerMemory{
		MemoryType: string(b.Type), Size: b.Size, Topology: &resourcesapi.TopologyInfo{},
	}
	for _, n := range b.NUMAAffinity {
		out.Topology.Nodes = append(out.Topology.Nodes, &resourcesapi.NUMANode{ID: int64(n)})
	}
	return out
}
