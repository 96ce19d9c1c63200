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
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/node/devices"
	"github.com/berthd/berth/agent/node/podresources"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/lifecycle"
	"github.com/berthd/berth/internal/pods"
)

// Metrics are the metrics of all pieces.
type Metrics interface {
	devices.Metrics
	podresources.Metrics
}

// Deps are what a manager calls.
type Deps struct {
	// Occupants returns the pods that have not ended. Known reports whether all of them are known.
	Occupants func() []room.Occupant
	Known     func() bool
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

	deps   Deps
	root   string
	health bool

	mu      sync.Mutex
	answers map[types.UID]answer
	// waiting are the pods that ask again when the node has other amounts.
	waiting map[types.UID]bool
}

// answer says how an allocation ended: nil if the pod has its pieces.
type answer struct{ refused *admit.Rejection }

// New returns a manager. It reads the state files of an earlier agent.
func New(cfg *configs.Config, deps Deps) *Manager {
	m := &Manager{
		deps: deps, root: cfg.RootDir, health: cfg.GateEnabled("ResourceHealthStatus"),
		answers: map[types.UID]answer{}, waiting: map[types.UID]bool{},
	}
	m.Devices = devices.New(devices.Config{Dir: filepath.Join(cfg.RootDir, "device-plugins")}, devices.Deps{
		Holders: m.holders, Changed: m.changed, Affected: deps.Wake, Event: deps.Event, Metrics: deps.Metrics,
		Logger: deps.Logger,
	})
	return m
}

// Run serves the device plugins, and the programs that ask which container has what, until ctx
// ends.
func (m *Manager) Run(ctx context.Context) error {
	if !m.deps.KernelNotices {
		return lifecycle.Idle(ctx)
	}
	asked := podresources.New(filepath.Join(m.root, "pod-resources"), podresources.Deps{
		Pods: m.pods, Pieces: m.Devices, Metrics: m.deps.Metrics, Logger: m.deps.Logger,
	})
	return lifecycle.Run(ctx, []lifecycle.Loop{
		{Name: "device plugins", Run: m.Devices.Run},
		{Name: "pod resources", Run: asked.Run},
	})
}

// pods returns the pods that have not ended.
func (m *Manager) pods() []*v1.Pod {
	var out []*v1.Pod
	for _, o := range m.deps.Occupants() {
		out = append(out, o.Pod)
	}
	return out
}

// holders returns the pods that may have pieces of the node.
func (m *Manager) holders() (devices.Holders, bool) {
	if !m.deps.Known() {
		return nil, false
	}
	out := devices.Holders{}
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
func (m *Manager) Wants(pod *v1.Pod) bool { return m.Devices.Wants(pod) }

// Allocate gives the containers of a pod their pieces, and remembers the answer for
// [Manager.Answer]. running says which containers run already. The error is only that of a context
// that has ended.
func (m *Manager) Allocate(ctx context.Context, pod *v1.Pod, running func(container string) bool) error {
	err := m.Devices.Allocate(ctx, pod, running)
	if ctx.Err() != nil {
		m.Devices.Release(pod.UID)
		return context.Cause(ctx)
	}
	if err != nil {
		m.Devices.Release(pod.UID)
		m.deps.Logger.Info("pod does not get the devices of its containers", "pod", pods.FullName(pod), "uid", pod.UID,
			"err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[pod.UID] = answer{rejection(err)}
	return nil
}

// rejection returns an error in the kubelet's words for a pod's status; nil for none.
func rejection(err error) *admit.Rejection {
	later := (*devices.Later)(nil)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &later):
		return &admit.Rejection{
			Reason: "UnexpectedAdmissionError", Message: later.Error(), Detail: later.Error(), Later: true,
		}
	}
	return &admit.Rejection{
		Reason:  "UnexpectedAdmissionError",
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
// any more. If it waits, it is woken when the node has other amounts, to ask again.
func (m *Manager) Decided(uid types.UID, admitted, waits bool) {
	if !admitted {
		m.Devices.Release(uid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, uid)
	if delete(m.waiting, uid); waits {
		m.waiting[uid] = true
	}
}

// Forget drops all that is known of a pod that is gone, and takes its pieces.
func (m *Manager) Forget(uid types.UID) { m.Decided(uid, false, false) }

// Container returns what a container gets at its start.
func (m *Manager) Container(ctx context.Context, pod *v1.Pod, c *v1.Container) (devices.Given, error) {
	return m.Devices.Container(ctx, pod, c)
}

// Health returns the health of the devices of a pod's containers, by the container's name; nil if
// the feature gate ResourceHealthStatus is off.
func (m *Manager) Health(uid types.UID) map[string][]v1.ResourceStatus {
	if !m.health {
		return nil
	}
	return m.Devices.Health(uid)
}

// Capacity returns what the node has of its devices, and how much of it pods can have.
func (m *Manager) Capacity() (capacity, allocatable v1.ResourceList) { return m.Devices.Capacity() }
