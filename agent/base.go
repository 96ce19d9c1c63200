package agent

import (
	"cmp"
	"context"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/desired"
	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/desired/stopped"
	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/node/eviction"
	"github.com/berthd/berth/agent/node/gc"
	"github.com/berthd/berth/agent/node/preempt"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/node/runtimestate"
	"github.com/berthd/berth/agent/node/userns"
	"github.com/berthd/berth/agent/pod"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/observe"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/agent/telemetry/history"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/silent"
	"github.com/berthd/berth/status"
)

// signals say which part must look again. A sender does not have to know the receiver.
type signals struct {
	cluster.Signals

	// wanted: the sources want something else. stale: the runtime has pods that no worker knew.
	// pods: the set of the workers' pods has changed, or the pods' resources have. interrupted: an
	// operation was cut off in the runtime.
	wanted, stale, pods, interrupted notify.Signal
}

func newSignals() signals {
	return signals{
		Signals: cluster.Signals{Node: notify.New(), Static: notify.New(), Drivers: notify.New()},
		wanted:  notify.New(), stale: notify.New(), pods: notify.New(), interrupted: notify.New(),
	}
}

// base has the parts on which all other parts are built.
type base struct {
	cfg     *configs.Config
	deps    Deps
	signals signals
	workers *worker.Pool
	records pod.Records
	// local has the objects of manifests. drivers has the registered storage drivers.
	local   *objects.Store
	drivers *csi.Drivers
	desired *desired.State
	gate    *drain.Gate
	// stopped has the pods that operators have stopped.
	stopped *stopped.Marks
	runtime *runtimestate.State
	room    *room.Room
	// allocation gives containers the node's devices.
	allocation *allocation.Manager
	// pressure has what the node lacks.
	pressure *eviction.Pressure
	pruning  *gc.Marks
	// observer reads the sandboxes and containers of the runtime.
	observer *observe.Observer
	// looks bounds the looks at file systems that may not answer.
	looks *silent.Looks
}

func newBase(ctx context.Context, cfg *configs.Config, deps Deps) (*base, error) {
	store, err := checkpoint.Open(filepath.Join(cfg.RootDir, "berth", "pods"))
	if err != nil {
		return nil, err
	}
	b := &base{
		cfg: cfg, deps: deps, signals: newSignals(),
		workers:  worker.New(ctx, worker.Config{}, deps.Logger),
		records:  pod.Records{Checkpoint: store, Status: status.NewStore(), Timeline: timeline.New()},
		local:    objects.New(),
		desired:  &desired.State{},
		gate:     drain.NewGate(cfg.RootDir),
		stopped:  stopped.Open(cfg.RootDir, deps.Logger),
		pruning:  gc.NewMarks(),
		pressure: &eviction.Pressure{},
		observer: observe.New(deps.Runtime),
		looks:    silent.NewLooks(cfg.RootDir),
	}
	b.records.History = b.newHistory()
	b.drivers = csi.NewDrivers(func() {
		desired.WakeCSI(b.workers)
		b.signals.Drivers.Notify()
	}, deps.Metrics.CSI, deps.Logger)
	b.runtime = runtimestate.New(runtimestate.Deps{
		Runtime: deps.Runtime, Node: deps.Node, Changed: b.signals.Node.Notify,
		Event: deps.Events.Node, Logger: deps.Logger,
	})
	preemptor := preempt.New(preempt.Deps{
		Cluster: deps.Cluster != nil, Stop: b.workers.Stop, Event: deps.Events.Pod, Preempted: deps.Metrics.Preempted,
		Logger: deps.Logger,
	})
	occupants := func() []room.Occupant { return pod.Occupants(b.workers, b.records.Status) }
	if b.allocation, err = allocation.New(cfg, allocation.Deps{
		Reserved: deps.Node.Reserved, Amounts: deps.Node.Amounts, Runtime: deps.Runtime, Status: b.records.Status.Get,
		Present: b.workers.Known, ResourceAPI: cluster.ResourceAPI(deps.Cluster, deps.Node.Name),
		Listed: func() []*v1.Pod { return pod.Listed(b.workers) }, Occupants: occupants, Known: b.desired.AllReady,
		Changed: b.signals.Node.Notify, Wake: b.workers.Wake,
		Event: deps.Events.Node, Metrics: deps.Metrics, KernelNotices: deps.KernelNotices, Logger: deps.Logger,
	}); err != nil {
		return nil, err
	}
	deps.Node.SetDevices(b.allocation.Devices)
	deps.Cgroups.SetPinned(b.allocation.Pinned)
	b.room = room.New(room.Deps{
		Occupants: occupants, Unallocated: b.allocation.Refused, Unresizable: b.allocation.Unresizable,
		Node: func() admit.Node {
			n := deps.Node.Admission()
			n.Pressures, n.ShuttingDown = b.pressure.Conditions(), b.gate.ShuttingDown()
			return n
		},
		Reread: deps.Node.Reread, Allocatable: deps.Node.Countable, Wake: b.workers.Wake,
		Victims: preemptor.Victims, Leave: preemptor.Leave,
	})
	return b, nil
}

// newHistory returns the recorder of what happened to the pods, which hears of every event.
func (b *base) newHistory() *history.Recorder {
	h := history.New(history.ConfigFrom(b.cfg), history.Deps{
		Timeline: b.records.Timeline, Logger: b.deps.Logger,
		Pod: func(uid types.UID) (history.Pod, bool) {
			s, ok := b.records.Status.Get(uid)
			if !ok {
				return history.Pod{}, false
			}
			word := cmp.Or(s.Status.Reason, string(s.Status.Phase))
			return history.Pod{Namespace: s.Namespace, Name: s.Name, Status: word}, true
		},
	})
	b.deps.Events.Listen(h.Event)
	return h
}

// trustBundles reports whether pods may have ClusterTrustBundles.
func (b *base) trustBundles() bool {
	return b.deps.Cluster != nil && b.cfg.GateEnabled("ClusterTrustBundleProjection")
}

// certificates reports whether signers of the cluster issue certificates for pods.
func (b *base) certificates() bool {
	return b.deps.Cluster != nil && b.cfg.GateEnabled("PodCertificateRequest")
}

// newUserIDs returns the allocator that gives pods with hostUsers: false their ids.
func (b *base) newUserIDs() *userns.Allocator {
	ids := uint32(userns.Unit)
	if u := b.cfg.Kubelet.UserNamespaces; u != nil && u.IDsPerPod != nil {
		ids = uint32(*u.IDsPerPod) // the config's validation has checked the range
	}
	return userns.New(userns.Config{
		PodsDir:   filepath.Join(b.cfg.RootDir, "pods"),
		IDsPerPod: ids,
		MaxPods:   b.deps.Node.MaxPods(),
		Logger:    b.deps.Logger,
		Used:      userns.UsedBy(b.deps.Runtime),
		Host: func() (userns.Range, error) {
			return userns.HostRange(context.Background(), ids, userns.HostLookups())
		},
	})
}
