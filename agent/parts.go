package agent

import (
	"context"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/desired"
	"github.com/berthd/berth/agent/desired/drain"
	"github.com/berthd/berth/agent/desired/stopped"
	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/agent/images/garbage"
	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/node/configstate"
	"github.com/berthd/berth/agent/node/gc"
	"github.com/berthd/berth/agent/node/logs"
	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/agent/node/podcidr"
	"github.com/berthd/berth/agent/node/room"
	"github.com/berthd/berth/agent/node/runtimestate"
	"github.com/berthd/berth/agent/pod"
	"github.com/berthd/berth/agent/pod/generate"
	"github.com/berthd/berth/agent/pod/hooks"
	"github.com/berthd/berth/agent/pod/observe"
	"github.com/berthd/berth/agent/pod/origin"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/claims"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/lifecycle"
	"github.com/berthd/berth/probes"
)

// parts are the parts of the agent. Code that needs two parts is itself a part.
type parts struct {
	runtime    *runtimestate.State
	workers    *worker.Pool
	engine     *pod.Engine
	pleg       *observe.PLEG
	desired    *desired.State
	mux        *source.Mux
	reconciler *desired.Reconciler
	adopter    *desired.Adopter
	operations
	side    cluster.Side
	images  *images.Manager
	probes  *probes.Manager
	logs    logKeeper
	podCIDR *podcidr.Keeper
	plugins func(context.Context) error
	collectors
	places
	knowledge
	protection
}

// places are what pods have of the node: amounts, and single pieces such as devices.
type places struct {
	room       *room.Room
	allocation *allocation.Manager
}

// collectors remove what nobody needs any more.
type collectors struct {
	gc      *gc.Collector
	imageGC *garbage.Collector
}

// operations are what stops and starts pods for operators: all of the node, or single ones.
type operations struct {
	drainer  *drain.Drainer
	operator *stopped.Operator
}

// logKeeper keeps container logs small; *logs.Manager implements it.
type logKeeper interface {
	pod.LogTracker
	Set(cfg logs.Config)
	Rotates() bool
	Run(ctx context.Context) error
}

// newParts makes the parts, each part from the parts before it.
func newParts(ctx context.Context, cfg *configs.Config, deps Deps) (*parts, error) {
	b, err := newBase(ctx, cfg, deps)
	if err != nil {
		return nil, err
	}
	p := &parts{
		runtime: b.runtime, workers: b.workers, desired: b.desired,
		knowledge: knowledge{
			history: b.records.History, config: configstate.New(configstate.Deps{Event: deps.Events.Node}),
		},
		places:  places{b.room, b.allocation},
		podCIDR: podcidr.New(deps.Runtime, cfg.Kubelet.PodCIDR, deps.Logger),
	}
	api, err := cluster.OpenObjects(deps.Cluster, cluster.ObjectsDeps{
		Node: deps.Node, Drivers: b.drivers, Events: deps.Events, Wake: b.workers.Wake, Logger: deps.Logger,
		TrustBundles: b.trustBundles(), Certificates: b.certificates(), NodeName: deps.Node.Name,
	})
	if err != nil {
		return nil, err
	}
	podObjects := &origin.Objects{Local: b.local, Claims: b.newClaims(), API: api}
	disks := b.newVolumes(podObjects, api)
	if p.images, err = b.newImages(podObjects, api); err != nil {
		return nil, err
	}
	if p.logs, err = b.newLogs(); err != nil {
		return nil, err
	}
	starts := pod.NewStartLimiter(int(cfg.Berth.MaxParallelPodStarts))
	p.side, err = cluster.Join(deps.Cluster, cluster.Deps{
		Config: cfg, Node: deps.Node, Runtime: deps.Runtime, State: b.runtime, Objects: api, Status: b.records.Status,
		Workers: b.workers, Desired: b.desired, Gate: b.gate, Volumes: disks, Drivers: b.drivers, PodCIDR: p.podCIDR,
		Pressures: b.pressure.Conditions, Events: deps.Events, Written: deps.Metrics.StatusWritten, Starting: starts.Queued,
		Signals: b.signals.Signals, Logger: deps.Logger,
	})
	if err != nil {
		return nil, err
	}
	p.probes = b.newProbes()
	p.engine = b.newEngine(ctx, p, podObjects, disks, starts)
	p.gc = b.newGC(p, disks)
	p.adopter = b.newAdopter(p, disks)
	p.pleg = b.newPLEG(p)
	p.drainer = drain.NewDrainer(drain.Deps{
		Pods: b.workers, Gate: b.gate, Config: &cfg.Kubelet, Reported: p.side.Reported,
		NodeChanged: b.signals.Node.Notify, Logger: deps.Logger,
	})
	p.mux = b.newMux(p)
	p.operator = stopped.NewOperator(stopped.Deps{
		Marks: b.stopped, Pods: b.workers, Containers: p.engine.Restart, Wanted: p.mux.Current,
		Changed: b.signals.wanted.Notify, Logger: deps.Logger,
	})
	p.reconciler = b.newReconciler(p)
	p.plugins = b.newPlugins()
	p.stats = b.newStats(p, disks)
	p.imageGC = b.newImageGC(p)
	if p.protection, err = b.newProtection(p); err != nil {
		return nil, err
	}
	b.local.OnChange(desired.LocalObjects{
		Store: b.local, Claims: podObjects.Claims, Workers: b.workers, Event: deps.Events.Pod, Logger: deps.Logger,
	}.Changed)
	deps.Metrics.Running(b.observer.Counts)
	deps.Metrics.ConfigInForce(p.config.Counts)
	deps.Metrics.RuntimeUp(func() bool { return b.runtime.Silence() == nil })
	deps.Metrics.PodCertificates(api.CountCertificates)
	deps.Metrics.Pods(deps.Cluster != nil, func() map[metrics.PodKind]int { return pod.Count(b.workers.List()) })
	return p, deps.Metrics.Registry.Register(p.stats.DiskMetrics())
}

// newClaims returns the binder of the node's claims to its volumes. The binder stores the bindings
// beside the pods' checkpoints.
func (b *base) newClaims() *claims.Binder {
	return claims.New(claims.Config{
		File:       filepath.Join(b.cfg.RootDir, "berth", "claims.json"),
		NodeLabels: b.deps.Node.Admission().Labels,
		PodExists: func(uid types.UID) bool {
			_, err := os.Lstat(volumes.PodDir(b.cfg.RootDir, uid))
			return err == nil
		},
		Logger: b.deps.Logger,
	}, b.local)
}

func (b *base) newVolumes(podObjects *origin.Objects, api cluster.Objects) *volumes.Manager {
	node := b.deps.Node
	var bundles volumes.TrustBundles
	var certificates volumes.Certificates
	var tokens volumes.Tokens // none without a cluster: nobody issues tokens
	if b.deps.Cluster != nil {
		tokens = podObjects
	}
	if b.trustBundles() {
		bundles = podObjects
	}
	if b.certificates() {
		certificates = podObjects
	}
	storage := podObjects.CSI()
	storage.Drivers, storage.Changed = b.drivers, b.signals.Node.Notify
	return volumes.New(volumes.Config{
		RootDir:         b.cfg.RootDir,
		NodeName:        node.Name,
		NodeAllocatable: node.Allocatable(),
		Templates:       b.deps.Cluster != nil,
	}, volumes.Deps{
		Apart: volumes.Apart(),
		CSI:   storage, Growth: api.Growth(), Tokens: tokens, TrustBundles: bundles, Certificates: certificates,
		Objects: podObjects, Claims: podObjects,
		Events: b.deps.Events.Pod, Operation: b.deps.Metrics.Storage, Logger: b.deps.Logger,
		FieldValue: func(pod *v1.Pod, ref *v1.ObjectFieldSelector, dyn volumes.Dynamic) (string, error) {
			return generate.FieldValue(pod, ref, generate.Addresses{HostIPs: dyn.HostIPs, PodIPs: dyn.PodIPs})
		},
		ResourceValue: func(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
			return generate.ResourceValue(pod, nil, ref, node.Allocatable())
		},
	})
}

func (b *base) newImages(podObjects *origin.Objects, accounts credentials.Accounts) (*images.Manager, error) {
	d, can := &b.deps, b.deps.Capabilities
	return images.Open(b.cfg, accounts, images.Deps{
		Runtime: d.Runtime, Importer: can.Importer, Pinner: can.Pinner, Pulls: can.Pulls, Secret: podObjects.PullSecret,
		Events: d.Events.Pod, Event: d.Events.Node, Wake: b.workers.Wake, Pulled: d.Metrics.ImagePulled,
		Ensured: d.Metrics.ImageEnsured, Logger: d.Logger,
	})
}

// newLogs returns the manager that keeps container logs small. If the config says so, newLogs
// returns one that leaves the logs alone.
func (b *base) newLogs() (logKeeper, error) {
	cfg, err := logs.ConfigFrom(b.cfg)
	switch {
	case !b.deps.KernelNotices:
		return logs.Unmanaged{}, nil
	case err != nil:
		return nil, err
	case cfg.MaxSize < 0:
		return logs.Unmanaged{}, nil
	}
	return logs.New(cfg, logs.Deps{Runtime: b.deps.Runtime, Logger: b.deps.Logger}), nil
}

func (b *base) newProbes() *probes.Manager {
	return probes.New(probes.Config{DenyLinkLocal: b.cfg.Berth.DenyLinkLocal}, probes.Deps{
		Exec: pod.Exec(b.deps.Runtime), Alive: b.runtime.Answers, OnChange: b.workers.Wake, Events: b.deps.Events.Pod,
		Observe: b.deps.Metrics.Probe, Logger: b.deps.Logger,
	})
}

func (b *base) newEngine(
	ctx context.Context, p *parts, podObjects *origin.Objects, disks *volumes.Manager, starts *pod.StartLimiter,
) *pod.Engine {
	d := &b.deps
	return pod.New(ctx, pod.Config{
		RootDir: b.cfg.RootDir, PodLogsDir: b.cfg.Kubelet.PodLogsDir, LinksDir: b.cfg.Berth.ContainerLogsDir,
		CrashLoopBackOff: b.cfg.Berth.CrashLoopBackOff, RunLastKnown: b.cfg.Berth.RunLastKnownPods,
		Dead: b.cfg.ContainerGC,
	}, pod.Deps{
		Records:   b.records,
		Telemetry: pod.Telemetry{Events: d.Events, Metrics: d.Metrics, Tracing: d.Tracing, Log: d.Logger},
		Runtime: pod.Runtime{
			Runtime:     d.Runtime,
			State:       b.runtime,
			Observer:    b.observer,
			Cgroups:     d.Cgroups,
			Interrupted: b.signals.interrupted.Notify,
		},
		Node: pod.Node{
			Node: d.Node, Room: b.room, Allocation: b.allocation, Logs: p.logs, UserIDs: b.newUserIDs(),
			Resized: b.signals.pods.Notify,
		},
		Workers: b.workers,
		Volumes: disks,
		Images:  p.images,
		Probes:  p.probes,
		Looks:   b.looks,
		Starts:  starts,
		Hooks: hooks.New(hooks.Config{DenyLinkLocal: b.cfg.Berth.DenyLinkLocal}, hooks.Deps{
			Exec: pod.Exec(d.Runtime), Events: d.Events.Pod, Logger: d.Logger,
			Observe: func(o hooks.Observation) { d.Metrics.Hook(o.HTTPFallback, o.SleepTerminated) },
		}),
		Objects:       podObjects,
		Desired:       b.desired,
		Cluster:       p.side,
		StaticChanged: b.signals.Static.Notify,
		Pruning:       b.pruning.Has,
		Stopped:       b.stopped.Of,
	})
}

func (b *base) newGC(p *parts, disks *volumes.Manager) *gc.Collector {
	return gc.New(gc.Deps{
		Workers:     b.workers,
		Live:        p.engine.Live,
		Ready:       b.desired.AllReady,
		Observer:    b.observer,
		Volumes:     disks,
		Cgroups:     b.deps.Cgroups,
		Images:      p.images,
		Containers:  p.engine,
		Event:       b.deps.Events.Node,
		Repairer:    b.deps.Capabilities.Repairer,
		PodLogsDir:  b.cfg.Kubelet.PodLogsDir,
		LinksDir:    b.cfg.Berth.ContainerLogsDir,
		Marks:       b.pruning,
		Changed:     b.signals.pods,
		Interrupted: b.signals.interrupted,
		Logger:      b.deps.Logger,
	})
}

func (b *base) newAdopter(p *parts, disks *volumes.Manager) *desired.Adopter {
	return desired.NewAdopter(desired.AdopterDeps{
		RootDir:    b.cfg.RootDir,
		Endpoint:   b.cfg.Kubelet.ContainerRuntimeEndpoint,
		PodDir:     disks.PodDir,
		Engine:     p.engine,
		Workers:    b.workers,
		Checkpoint: b.records.Checkpoint,
		Observer:   b.observer,
		State:      b.desired,
		Gate:       b.gate,
		Stopped:    b.stopped.Of,
		Hold:       b.room.Hold,
		Stale:      b.signals.stale,
		Orphaned:   b.deps.Metrics.PodOrphaned,
		Logger:     b.deps.Logger,
	})
}

func (b *base) newPLEG(p *parts) *observe.PLEG {
	return observe.NewPLEG(observe.PLEGConfig{Relist: b.cfg.Berth.RelistPeriod.Duration}, observe.PLEGDeps{
		Runtime: b.deps.Runtime, Observer: b.observer, Workers: b.workers, Unclaimed: p.adopter, Meet: b.runtime.Meet,
		Interrupted: func() {
			b.runtime.Doubt()
			b.signals.interrupted.Notify()
		},
		ExitSeen: b.deps.Metrics.ExitSeen,
		Relisted: b.deps.Metrics.Relisted, Logger: b.deps.Logger,
	})
}

// newMux returns the mux that merges the sources: static pods come from the caller's sources, or
// else from the manifest directory and the URL. The pods of a cluster come from its API server.
func (b *base) newMux(p *parts) *source.Mux {
	sources := b.deps.Sources
	if len(sources) == 0 {
		sources = source.FromConfig(b.cfg, source.ConfigDeps{
			NodeName: b.deps.Node.Name,
			LastGood: p.adopter.LastGood,
			Logger:   b.deps.Logger,
		})
	}
	sources = append(sources[:len(sources):len(sources)], p.side.Sources()...)
	if len(sources) == 0 {
		b.deps.Logger.Warn("no source of pods is configured (staticPodPath and staticPodURL are empty): pods of an " +
			"earlier run end now")
	}
	return source.NewMux(sources,
		source.MuxDeps{Objects: b.local, Out: func(source.Update) { b.signals.wanted.Notify() }})
}

func (b *base) newReconciler(p *parts) *desired.Reconciler {
	static := b.cfg.Berth.ResizeStaticPods
	return desired.New(desired.Config{ResizeStatic: static == nil || *static}, desired.Deps{
		Current:      p.mux.Current,
		News:         b.signals.wanted,
		Stale:        b.signals.stale,
		State:        b.desired,
		Workers:      b.workers,
		Gate:         b.gate,
		Admitted:     b.room.Admitted,
		RuntimeClass: b.local.RuntimeClass,
		Event:        b.deps.Events.Node,
		PodEvent:     b.deps.Events.Pod,
		Refused:      b.deps.Metrics.ManifestsRejected,
		Changed: func() {
			b.signals.Static.Notify()
			b.signals.pods.Notify()
		},
		Logger: b.deps.Logger,
	})
}

// newPlugins returns the loop that registers plugins, by their sockets in the kubelet's directory.
func (b *base) newPlugins() func(context.Context) error {
	if !b.deps.KernelNotices {
		return lifecycle.Idle
	}
	return plugins.New(plugins.Config{
		Dir: filepath.Join(b.cfg.RootDir, plugins.RegistryDir), Logger: b.deps.Logger,
		Handlers: map[string]plugins.Handler{
			registerapi.CSIPlugin: b.drivers, registerapi.DevicePlugin: b.allocation.Devices,
			registerapi.DRAPlugin: b.allocation.Claims,
		},
	}).Run
}
