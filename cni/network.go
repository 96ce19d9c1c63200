package cni

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sync/semaphore"
)

const (
	// DefaultConfDir has network configurations. It is the default of the CNI specification and of
	// Kubernetes.
	DefaultConfDir = "/etc/cni/net.d"
	// DefaultPluginTimeout bounds one run of one plugin.
	DefaultPluginTimeout = 2 * time.Minute
	// Interface is the name of a pod's interface, as in every Kubernetes runtime.
	Interface = "eth0"
	// maxCalls is how many calls may run at once. It only has to be more than there ever are.
	maxCalls = 1 << 20
)

// DefaultBinDirs returns the directories of plugins: that of the CNI project, and that of Debian
// and Fedora.
func DefaultBinDirs() []string { return []string{"/opt/cni/bin", "/usr/lib/cni"} }

// Config says where configurations and plugins are. Zero values mean the defaults, but StateDir
// must be set.
type Config struct {
	// ConfDir has network configurations. Default [DefaultConfDir].
	ConfDir string
	// BinDirs are searched for plugins, in order. Default [DefaultBinDirs].
	BinDirs []string
	// StateDir keeps the records of attachments and the results of ADD. It must outlive a restart of
	// the machine, because the addresses that plugins have given out do.
	StateDir string
	// PluginTimeout bounds one run of one plugin. Default [DefaultPluginTimeout].
	PluginTimeout time.Duration
}

// Network is the network of the node's pods. Make one with [New].
type Network struct {
	cfg     Config
	cni     libcni.CNI
	records records
	// calls has a unit for each running call; GC takes all of them while nothing else may run.
	calls *semaphore.Weighted
	// collecting has one unit, for a running GC, and stale are the sandboxes that it detaches.
	collecting *semaphore.Weighted
	stale      claims
	status     statusCache
}

// New returns the network of a node. It makes the state directory, but reads no configuration: the
// configuration may come later.
func New(cfg Config) (*Network, error) {
	if cfg.ConfDir == "" {
		cfg.ConfDir = DefaultConfDir
	}
	if len(cfg.BinDirs) == 0 {
		cfg.BinDirs = DefaultBinDirs()
	}
	if cfg.PluginTimeout <= 0 {
		cfg.PluginTimeout = DefaultPluginTimeout
	}
	if cfg.StateDir == "" {
		return nil, errors.New("cni: no state directory is set")
	}
	kept, err := openRecords(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	return &Network{
		cfg:        cfg,
		cni:        libcni.NewCNIConfigWithCacheDir(cfg.BinDirs, cfg.StateDir, &pluginExec{timeout: cfg.PluginTimeout}),
		records:    kept,
		calls:      semaphore.NewWeighted(maxCalls),
		collecting: semaphore.NewWeighted(1),
		status:     statusCache{now: time.Now},
	}, nil
}

// Sandbox is a pod sandbox that is attached.
type Sandbox struct {
	// ID is the sandbox's ID: letters, digits, "_", "." and "-".
	ID string
	// NetNS is the path of the sandbox's network namespace.
	NetNS string
	// Namespace, Name and UID identify the pod. Plugins get them as K8S_POD_… in CNI_ARGS.
	Namespace, Name, UID string
	// Capabilities are the wishes of the pod that some plugins can fulfil.
	Capabilities Capabilities
}

// Result is how a sandbox is attached.
type Result struct {
	// IPs are the addresses of [Interface], in the order of the plugin that gave them. There is at
	// least one.
	IPs []netip.Addr
	// Network is the name of the network.
	Network string
}

// Add attaches a sandbox. If a plugin fails, hangs or answers rubbish, Add deletes what the plugins
// before it have done. If that fails too, the record stays, and [Network.Del] tries again. Add
// returns errdefs.ErrAlreadyExists if the sandbox is or may be attached, and errdefs.ErrUnavailable
// if there is no usable configuration or one of its plugins is missing: then none of them is run.
func (n *Network) Add(ctx context.Context, sandbox Sandbox) (*Result, error) {
	if err := n.begin(ctx, sandbox.ID); err != nil {
		return nil, err
	}
	defer n.calls.Release(1)
	list, err := n.load()
	if err != nil {
		return nil, err
	}
	if err := n.findPlugins(list); err != nil {
		return nil, fmt.Errorf("attach sandbox %s: %w", sandbox.ID, err)
	}
	rec := newRecord(sandbox, list)
	if err := n.records.add(rec); err != nil {
		return nil, err
	}
	result, err := n.add(ctx, list, rec)
	if err != nil {
		if undone := n.del(context.WithoutCancel(ctx), rec); undone != nil {
			err = errors.Join(err, fmt.Errorf("undo it: %w", undone))
		}
		return nil, fmt.Errorf("attach sandbox %s to network %q: %w", sandbox.ID, list.Name, err)
	}
	return result, nil
}

func (n *Network) add(ctx context.Context, list *libcni.NetworkConfigList, rec *record) (*Result, error) {
	raw, err := n.cni.AddNetworkList(ctx, list, rec.runtimeConf())
	if err != nil {
		return nil, err
	}
	ips, err := addresses(raw)
	if err != nil {
		return nil, fmt.Errorf("plugin %q: %w", list.Plugins[len(list.Plugins)-1].Network.Type, err)
	}
	return &Result{IPs: ips, Network: list.Name}, nil
}

// Check asks the plugins whether a sandbox is attached as ADD has left it. It returns
// errdefs.ErrNotFound if the sandbox is not attached, and nil if the configuration is of a version
// without CHECK (before 0.4.0) or has turned it off.
func (n *Network) Check(ctx context.Context, id string) error {
	if err := n.begin(ctx, id); err != nil {
		return err
	}
	defer n.calls.Release(1)
	rec, err := n.records.get(id)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("check the network of sandbox %s: it is not attached: %w", id, errdefs.ErrNotFound)
	}
	if err != nil {
		return err
	}
	list, err := rec.list()
	if err != nil {
		return err
	}
	err = n.cni.CheckNetworkList(ctx, list, rec.runtimeConf())
	if err != nil && !errors.Is(err, libcni.ErrorCheckNotSupp) {
		return fmt.Errorf("check sandbox %s on network %q: %w", id, list.Name, err)
	}
	return nil
}

// Del detaches a sandbox. It succeeds if the sandbox is not attached. If a plugin fails, the record
// stays and the call can be repeated. The network namespace may be gone.
func (n *Network) Del(ctx context.Context, id string) error {
	if err := n.begin(ctx, id); err != nil {
		return err
	}
	defer n.calls.Release(1)
	return n.delByID(ctx, id)
}

func (n *Network) delByID(ctx context.Context, id string) error {
	rec, err := n.records.get(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := n.del(ctx, rec); err != nil {
		return fmt.Errorf("detach sandbox %s from network %q: %w", id, rec.Network, err)
	}
	return nil
}

// del runs the plugins' DEL and then removes the record.
func (n *Network) del(ctx context.Context, rec *record) error {
	list, err := rec.list()
	if err != nil {
		return err
	}
	conf := rec.runtimeConf()
	if _, err := os.Stat(conf.NetNS); errors.Is(err, fs.ErrNotExist) {
		conf.NetNS = "" // the specification's way to say that the namespace is gone
	}
	if err := n.cni.DelNetworkList(ctx, list, conf); err != nil {
		return err
	}
	return n.records.remove(rec.ID)
}
