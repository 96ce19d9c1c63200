package agent

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/hostcgroups"
	"github.com/berthd/berth/agent/node/iptables"
	"github.com/berthd/berth/agent/node/kerneldefaults"
	"github.com/berthd/berth/agent/node/lock"
	"github.com/berthd/berth/agent/node/oom"
	"github.com/berthd/berth/agent/node/ownlimits"
	"github.com/berthd/berth/agent/node/runtimes"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/agent/telemetry/tracing"
	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/configs"
)

// Assemble makes an agent for this machine from its config: the container runtime, the machine's
// cgroups, its node facts. Assemble takes the locks of package lock, so that no
// second agent works on the same pods. closeAll gives everything back after Run has returned.
func Assemble(
	ctx context.Context, cfg *configs.Config, version string, log *slog.Logger,
) (a *Agent, closeAll func(), err error) {
	undo := &undos{}
	defer func() {
		if err != nil {
			undo.all()
		}
	}()
	n, err := node.New(cfg, log)
	if err != nil {
		return nil, nil, err
	}
	if err := checkSwap(cfg, node.Swap, log); err != nil {
		return nil, nil, err
	}
	if cfg.Kubelet.EnableContentionProfiling {
		runtime.SetBlockProfileRate(1) // for /debug/pprof/block: every event, as a kubelet does
	}
	ownlimits.Apply(cfg, ownlimits.Self(), log)
	if err := kerneldefaults.Apply(kerneldefaults.Proc, cfg.Kubelet.ProtectKernelDefaults, log); err != nil {
		return nil, nil, err
	}
	held, err := lock.Take(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	undo.add(held.Release)
	set, recorder := metrics.New(n.Name, version), events.New(n.Name)
	set.Constants(string(cgroups.HostVersion()), node.KubernetesVersion(), cfg.Gates())
	traces, err := tracing.New(ctx, cfg.Kubelet.Tracing, n.Name, log)
	if err != nil {
		return nil, nil, err
	}
	undo.add(func() { closeTraces(ctx, traces, log) })
	conn, err := cluster.Connect(cfg, n, version, set, traces, log)
	if err != nil {
		return nil, nil, err
	}
	rt, err := runtimes.Open(ctx, cfg, runtimes.Deps{
		Version: version, Observe: set.Operation, Options: traces.DialOptions(), Logger: log,
	})
	if err != nil {
		return nil, nil, err
	}
	undo.add(rt.Close)
	var reserved hostcgroups.Reserved
	reserved.System, reserved.Kube = n.Reserved()
	a, err = New(ctx, cfg, Deps{
		Runtime: rt, Capabilities: rt.Capabilities(), Node: n, Cluster: conn, Metrics: set, Events: recorder,
		Tracing: traces, Logger: log, KernelNotices: true, Iptables: iptables.Host, KernelLog: oom.KernelLog,
		Cgroups: hostcgroups.New(hostcgroups.Deps{
			Config: cfg, Runtime: rt, Capacity: n.Capacity(), Enforced: n.Enforced(), Reserved: reserved, Logger: log,
			Swap:  node.SwapCapacity(),
			Event: recorder.Node, Observe: set.CgroupOperation, Claim: held.Cgroup,
		}),
	})
	return a, undo.all, err
}

// closeTraces sends the last traces.
func closeTraces(ctx context.Context, traces *tracing.Tracing, log *slog.Logger) {
	if err := traces.Close(ctx); err != nil {
		log.Warn("the last traces not sent", "err", err)
	}
}

// undos is the list of functions that give back the acquired resources.
type undos struct{ list []func() }

func (u *undos) add(undo func()) { u.list = append(u.list, undo) }

// all gives everything back, in the reverse order of the acquisition.
func (u *undos) all() {
	for i := len(u.list) - 1; i >= 0; i-- {
		u.list[i]()
	}
	u.list = nil
}

// checkSwap refuses a host with swap if the config itself sets failSwapOn. Upstream's default sets
// it for every node. But berth's pods get no swap unless memorySwap gives it, and a machine
// without a cluster usually has swap: there the default is only a warning. swap returns where the
// host swaps to; empty if it does not.
func checkSwap(cfg *configs.Config, swap func() (to string, err error), log *slog.Logger) error {
	if fail := cfg.Kubelet.FailSwapOn; fail == nil || !*fail {
		return nil
	}
	to, err := swap()
	if err != nil || to == "" {
		return err
	}
	if !cfg.IsSet("failSwapOn") {
		log.Warn("this host swaps; a kubelet would not start by default. Pods get no swap unless memorySwap "+
			"gives it. "+
			"Set failSwapOn to refuse such a host (true) or to expect it (false)", "swap", to)
		return nil
	}
	return fmt.Errorf("failSwapOn: this host swaps to %s: switch it off with swapoff -a, or set failSwapOn: false", to)
}
