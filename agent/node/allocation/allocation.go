// Package allocation gives the containers of a pod what the node has in single pieces.
//
// Purpose: one place that asks the owners of such pieces, above all package devices, for the pieces
// of a pod that wants to run ([Manager.Allocate]), that remembers the answer until the pod's
// admission is decided, and that gathers what a container gets at its start
// ([Manager.Container]).
//
// Truth owned: the answers for pods that are not admitted yet. Who has which piece is known by the
// pieces' owners.
//
// Concurrency: a [Manager] is safe for concurrent use. Allocate may take long, because plugins are
// asked: it runs beside the pod's worker.
package allocation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/node/cpus"
	"github.com/berthd/berth/agent/node/devices"
	"github.com/berthd/berth/agent/node/dra"
	"github.com/berthd/berth/agent/node/memory"
	"github.com/berthd/berth/agent/node/podlevel"
	"github.com/berthd/berth/agent/node/podresources"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/status"
)

// Metrics are the metrics of all pieces.
type Metrics interface {
	devices.Metrics
	dra.Metrics
	cpus.Metrics
	memory.Metrics
	podresources.Metrics
	// Aligned counts a pod that was admitted or refused, and how long it took to give it its pieces.
	// It failed if it did not get them under a policy that aligns.
	Aligned(failed bool, took time.Duration)
	// Alignable makes the counts of Guaranteed exist before there is anything to count.
	Alignable()
	// Guaranteed counts what has its pieces on one NUMA node under the policy single-numa-node, or
	// cannot have them there: a container or, with the scope pod, a pod.
	Guaranteed(scope string, failed bool)
}

// Deps are what a manager calls.
type Deps struct {
	// Occupants returns the pods that have not ended. Known reports whether all of them are known.
	Occupants func() []room.Occupant
	Known     func() bool
	// Present returns the pods that have a worker or wait for one; Listed those of them whose spec is
	// known, whether or not they have ended.
	Present func() map[types.UID]bool
	Listed  func() []*v1.Pod
	// ResourceAPI has the API server's objects for package dra; nil without a cluster.
	ResourceAPI dra.API
	// Reserved returns what the config keeps from the pods.
	Reserved func() (system, kube v1.ResourceList)
	// Amounts returns what the node has, and what pods cannot have of it.
	Amounts func() (capacity, withheld v1.ResourceList)
	Runtime cpus.Runtime
	// Status returns a pod's last status.
	Status func(uid types.UID) (status.Entry, bool)
	// Changed is called after the node has other amounts. Wake makes a sync of a pod.
	Changed func()
	Wake    func(uid types.UID)
	// Event records an event about the node.
	Event   func(kind, reason, message string)
	Metrics Metrics
	// KernelNotices is false for tests in fake time, which cannot serve sockets.
	KernelNotices bool
	Logger        *slog.Logger
}

// Manager gives containers their pieces of the node. Make it with [New].
type Manager struct {
	// Devices are the devices of device plugins.
	Devices *devices.Manager
	// Claims are the devices of resource claims.
	Claims *dra.Manager
	// cpus are the CPUs that containers have for themselves.
	cpus *cpus.Manager
	// memory is the memory that containers have of certain NUMA nodes.
	memory *memory.Manager

	deps   Deps
	root   string
	health bool

	topology *topology.Policy
	// rules are those for pods with resources of their own.
	rules podlevel.Rules
	// aligning is held over an allocation whose pieces have to be on the same NUMA nodes.
	aligning sync.Mutex

	mu      sync.Mutex
	answers map[types.UID]answer
	// waiting are the pods that ask again when the node has other amounts.
	waiting map[types.UID]bool
}

// answer says how an allocation ended, and how long it took.
type answer struct {
	// refused is nil if the pod has its pieces.
	refused *admit.Rejection
	took    time.Duration
}

// New returns a manager. It reads the state files of an earlier agent.
func New(cfg *configs.Config, deps Deps) (*Manager, error) {
	m := &Manager{
		deps: deps, root: cfg.RootDir, health: cfg.GateEnabled("ResourceHealthStatus"),
		answers: map[types.UID]answer{}, waiting: map[types.UID]bool{},
	}
	var err error
	if m.topology, err = topology.ConfigFrom(cfg, topology.System); err != nil {
		return nil, err
	}
	if m.topology.Aligns() {
		deps.Metrics.Alignable()
	}
	m.rules = podlevel.Rules{
		Managed: cfg.GateEnabled("PodLevelResourceManagers"), ByPod: m.topology.Aligns() && m.topology.ByPod,
	}
	byClaim := cfg.GateEnabled("DRAExtendedResource")
	m.Devices = devices.New(devices.Config{
		Dir: devicesDir(cfg.RootDir), Nodes: m.topology.Nodes, ByClaim: byClaim,
	}, devices.Deps{
		Holders: m.holders, Changed: m.changed, Affected: deps.Wake, Event: deps.Event, Metrics: deps.Metrics,
		Logger: deps.Logger,
	})
	m.Claims = dra.New(dra.Config{
		Root: cfg.RootDir, ExtendedResources: byClaim, Health: m.health,
		HealthMessages: cfg.GateEnabled("ResourceHealthStatusMessage"),
	}, dra.Deps{
		API: deps.ResourceAPI, Present: deps.Present, Known: deps.Known, Wake: deps.Wake, Event: deps.Event,
		Metrics: deps.Metrics, Logger: deps.Logger,
	})
	pinning, err := cpus.ConfigFrom(cfg, deps.Reserved)
	if err != nil {
		return nil, err
	}
	pinning.Rules = m.rules
	if m.cpus, err = cpus.New(pinning, cpus.Deps{
		Holders: m.holders, Runtime: deps.Runtime, Instances: m.instances, Event: deps.Event, Metrics: deps.Metrics,
		Logger: deps.Logger,
	}); err != nil {
		return nil, err
	}
	nodes, err := memory.ConfigFrom(cfg, topology.System, deps.Amounts)
	if err != nil {
		return nil, err
	}
	nodes.Rules = m.rules
	m.memory = memory.New(nodes, memory.Deps{
		Holders: m.holders, Event: deps.Event, Metrics: deps.Metrics, Logger: deps.Logger,
	})
	return m, nil
}

// instances returns the containers that run.
func (m *Manager) instances() []cpus.Instance {
	var out []cpus.Instance
	for _, o := range m.deps.Occupants() {
		s, ok := m.deps.Status(o.Pod.UID)
		if !ok {
			continue
		}
		for _, c := range slices.Concat(
			s.Status.InitContainerStatuses, s.Status.ContainerStatuses, s.Status.EphemeralContainerStatuses,
		) {
			if _, id, ok := strings.Cut(c.ContainerID, "://"); ok && c.State.Running != nil {
				out = append(out, cpus.Instance{UID: o.Pod.UID, Container: c.Name, ID: id})
			}
		}
	}
	return out
}

// holders returns the pods that may have pieces of the node.
func (m *Manager) holders() (map[types.UID]bool, bool) {
	if !m.deps.Known() {
		return nil, false
	}
	out := map[types.UID]bool{}
	for _, o := range m.deps.Occupants() {
		out[o.Pod.UID] = o.Terminating
	}
	return out, true
}

// changed wakes those who wait for pieces, and those who count them.
func (m *Manager) changed() {
	m.deps.Changed()
	m.mu.Lock()
	waiting := slices.Collect(maps.Keys(m.waiting))
	m.mu.Unlock()
	for _, uid := range waiting {
		m.deps.Wake(uid)
	}
}

// Wants reports whether a pod wants a piece of the node, so that Allocate has to be called.
func (m *Manager) Wants(pod *v1.Pod) bool {
	return m.Devices.Wants(pod) || m.cpus.Wants(pod) || m.memory.Wants(pod)
}

// Lost reports whether a pod has devices of which nobody knows any more whether there are such.
func (m *Manager) Lost(pod *v1.Pod) bool { return m.Devices.Lost(pod) }

// Allocate gives the containers of a pod their pieces, and remembers the answer for
// [Manager.Answer]. running says which containers run already. The error is only that of a context
// that has ended.
func (m *Manager) Allocate(ctx context.Context, pod *v1.Pod, running func(container string) bool) error {
	took, err := m.give(ctx, pod, running)
	if ctx.Err() != nil {
		m.release(pod.UID)
		return context.Cause(ctx)
	}
	if err != nil {
		m.release(pod.UID)
		m.deps.Logger.Info("pod does not get the devices, the CPUs or the memory of its containers", "pod",
			pods.FullName(pod), "uid", pod.UID, "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[pod.UID] = answer{rejection(err), took}
	return nil
}

// unexpected is the reason of a pod that does not get its pieces.
const unexpected = "UnexpectedAdmissionError"

// release takes all pieces from a pod.
func (m *Manager) release(uid types.UID) {
	m.Devices.Release(uid)
	m.cpus.Release(uid)
	m.memory.Release(uid)
}

// rejection returns an error in the kubelet's words for a pod's status; nil for none.
func rejection(err error) *admit.Rejection {
	device, cpu, cores := (*devices.Later)(nil), (*cpus.Later)(nil), (*cpus.SMTAlignmentError)(nil)
	leaving, apart, nodes := (*later)(nil), (*topology.Error)(nil), (*memory.Later)(nil)
	empty := (*podlevel.EmptyPool)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &device), errors.As(err, &cpu), errors.As(err, &leaving), errors.As(err, &nodes):
		return &admit.Rejection{Reason: unexpected, Message: err.Error(), Detail: err.Error(), Later: true}
	case errors.As(err, &apart):
		return &admit.Rejection{Reason: "TopologyAffinityError", Message: apart.Error()}
	case errors.As(err, &empty):
		return &admit.Rejection{Reason: "EmptyPodSharedPoolError", Message: empty.Error()}
	case errors.As(err, &cores):
		return &admit.Rejection{Reason: "SMTAlignmentError", Message: cores.Error()}
	}
	return &admit.Rejection{
		Reason:  unexpected,
		Message: fmt.Sprintf("Allocate failed due to %v, which is unexpected", err),
	}
}

// Answered reports whether Allocate has answered for a pod since the last Release.
func (m *Manager) Answered(uid types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.answers[uid]
	return ok
}

// Refused returns why a pod does not get its pieces; nil if it got them, or wants none.
func (m *Manager) Refused(uid types.UID) *admit.Rejection {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answers[uid].refused
}

// Decided notes how the admission of a pod was decided. A pod that is not admitted has no pieces
// any more. If it waits, it is woken when the node has other amounts, to ask again; it counts when
// it waits no more.
func (m *Manager) Decided(pod *v1.Pod, admitted, waits bool) {
	if last, asked := m.settle(pod.UID, admitted, waits); !waits {
		m.count(pod, last, asked)
	}
}

// settle drops and returns the answer to a pod.
func (m *Manager) settle(uid types.UID, admitted, waits bool) (last answer, asked bool) {
	if !admitted {
		m.release(uid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	last, asked = m.answers[uid]
	delete(m.answers, uid)
	if delete(m.waiting, uid); waits {
		m.waiting[uid] = true
	}
	return last, asked
}

// Forget drops all that is known of a pod that is gone, and takes its pieces.
func (m *Manager) Forget(uid types.UID) { m.settle(uid, false, false) }

// Given is what a container gets at its start.
type Given struct {
	devices.Given
	// CPUs are the CPUs that it may run on, as "0-1,4"; empty for all.
	CPUs string
	// MemoryNodes are the NUMA nodes whose memory it may use, as "0,1"; empty for all.
	MemoryNodes string
}

// Container returns what a container gets at its start.
func (m *Manager) Container(ctx context.Context, pod *v1.Pod, c *v1.Container) (Given, error) {
	given, err := m.Devices.Container(ctx, pod, c)
	if err != nil {
		return Given{}, err
	}
	claimed, err := m.Claims.CDIDevices(pod, c)
	if err != nil {
		return Given{}, err
	}
	given.CDIDevices = append(given.CDIDevices, claimed...)
	set, err := m.cpus.Set(pod, c)
	if err != nil {
		return Given{}, err
	}
	nodes, err := m.memory.Start(pod, c)
	return Given{Given: given, CPUs: set.String(), MemoryNodes: nodes}, err
}

// Pinned reports whether a container has its CPUs for itself; with nil, whether the pod has.
func (m *Manager) Pinned(pod *v1.Pod, c *v1.Container) bool { return m.cpus.Pinned(pod, c) }

// Health returns the health of the devices of a pod's containers, those of device plugins and those
// of resource claims, by the container's name; nil if the feature gate ResourceHealthStatus is off.
func (m *Manager) Health(pod *v1.Pod) map[string][]v1.ResourceStatus {
	if !m.health {
		return nil
	}
	out := m.Devices.Health(pod.UID)
	for container, list := range m.Claims.Health(pod) {
		out[container] = append(out[container], list...)
	}
	return out
}
