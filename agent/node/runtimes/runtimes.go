package runtimes

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/containerd"
	"github.com/berthd/berth/cri/joint"
	"github.com/berthd/berth/cri/native"
	"github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/cri/native/nri"
	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/cri/serve"
)

const (
	unixScheme = "unix://"
	// defaultRoot is the root directory whose agent has the plain namespace.
	defaultRoot = "/var/lib/kubelet"
	// namespace is the containerd namespace of the default root directory, and begins the others.
	namespace = "berth"
)

// Deps are what a runtime works with.
type Deps struct {
	// Version is the agent's version, which is the native runtime's.
	Version string
	// Observe, if set, is called after every operation with its name as in the label operation_type
	// of kubelet_runtime_operations, its duration, and its classified error.
	Observe func(operation string, d time.Duration, err error)
	// Options are added to those of the connections to a CRI socket.
	Options []grpc.DialOption
	Logger  *slog.Logger
}

// Runtime is the node's container runtime. Make it with [Open], end it with [Runtime.Close].
type Runtime struct {
	*joint.Runtime
	cfg    *configs.Config
	deps   Deps
	remote *remote.Runtime
	// containerd is the runtime of the CRI socket, completed by what containerd does.
	containerd *containerd.Runtime
	// stopServing ends the config's CRI socket; nil without one.
	stopServing func()
}

// Open returns the runtime of a config, and serves it on the config's CRI socket if there is one.
// Open makes no call: the runtime may start later.
func Open(ctx context.Context, cfg *configs.Config, deps Deps) (*Runtime, error) {
	timeout := cfg.Kubelet.RuntimeRequestTimeout.Duration
	rt, err := remote.Dial(ctx, remote.Config{
		Endpoint: cfg.Kubelet.ContainerRuntimeEndpoint, ImageEndpoint: cfg.Kubelet.ImageServiceEndpoint,
		RequestTimeout: timeout, Logger: deps.Logger, Observe: deps.Observe, Options: deps.Options,
	})
	if err != nil {
		return nil, err
	}
	r := &Runtime{
		cfg: cfg, deps: deps, remote: rt,
		containerd: containerd.New(containerd.Config{
			RequestTimeout: timeout, Logger: deps.Logger, Observe: deps.Observe,
		}, rt),
	}
	r.Runtime = joint.New(joint.Config{
		Choose: r.choose, Emptied: r.emptied, RequestTimeout: timeout, Logger: deps.Logger,
	})
	if cfg.Berth.CRISocket == "" {
		return r, nil
	}
	if r.stopServing, err = serve.Start(ctx, cfg.Berth.CRISocket, r.Runtime); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the runtime and its connections. Containers run on.
func (r *Runtime) Close() {
	if r.stopServing != nil {
		r.stopServing()
	}
	r.Runtime.Close()
	r.containerd.Close()
	if err := r.remote.Close(); err != nil {
		r.deps.Logger.Warn("connection to the runtime not closed", "err", err)
	}
}

// socketMember returns the runtime of the CRI socket. Its connections end with [Runtime.Close].
func (r *Runtime) socketMember() *joint.Member {
	return &joint.Member{
		Runtime: r.containerd, Name: "the runtime of the CRI socket " + r.cfg.Kubelet.ContainerRuntimeEndpoint,
		Capabilities: r.containerd.Capabilities(), Close: func() {},
	}
}

// nativeHome is the directory of the native runtime in a root directory.
func nativeHome(rootDir string) string { return filepath.Join(rootDir, "berth", "native") }

// openNative returns the native runtime at a place.
func (r *Runtime) openNative(ctx context.Context, at place) (*joint.Member, error) {
	if err := reach(ctx, at.Address); err != nil {
		return nil, err
	}
	cfg, err := nativeConfig(r.cfg, at)
	if err != nil {
		return nil, err
	}
	cfg.Version, cfg.Logger = r.deps.Version, r.deps.Logger
	rt, err := native.New(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start the native runtime: %w", err)
	}
	member := &joint.Member{Runtime: rt, Name: "the native runtime", Observe: r.deps.Observe, Close: rt.Close}
	member.Capabilities.Importer, member.Capabilities.Pinner, member.Capabilities.Pulls = rt, rt, rt
	return member, nil
}

// stallFactor is how many times longer the native runtime waits for a silent registry than the
// agent. The agent ends such a pull itself, and says how far it came.
const stallFactor = 2

// nativeConfig returns the config of the native runtime at a place.
func nativeConfig(cfg *configs.Config, at place) (native.Config, error) {
	home := nativeHome(cfg.RootDir)
	network, err := cni.New(cni.Config{
		ConfDir: cfg.Berth.CNI.ConfDir, BinDirs: cfg.Berth.CNI.BinDirs, StateDir: filepath.Join(home, "cni"),
	})
	if err != nil {
		return native.Config{}, err
	}
	d := &cfg.Berth.Containerd
	return native.Config{
		Containerd: at.Address, Namespace: at.Namespace, Network: network,
		Pause: native.PauseMode(cfg.Berth.Sandbox.Pause), PauseImage: cfg.Berth.Sandbox.Image,
		Images: images.Config{
			RegistryDir: d.RegistryConfigDir, Stall: stallFactor * cfg.Berth.ImagePullStallTimeout.Duration,
		},
		Handlers:       handlers(d),
		SystemdCgroups: cfg.Kubelet.CgroupDriver == "systemd",
		RootDir:        filepath.Join(home, "root"),
		StateDir:       filepath.Join(home, "state"),
		RequestTimeout: cfg.Kubelet.RuntimeRequestTimeout.Duration,
		NoSwapLimits:   !cgroups.SwapAccounting(),
		NRI:            plugins(&cfg.Berth.NRI),
	}, nil
}

// plugins returns where NRI plugins come from; nil for none.
func plugins(n *configs.NRIConfiguration) *nri.Config {
	if !n.Enabled {
		return nil
	}
	return &nri.Config{Socket: n.Socket, PluginDir: n.PluginDir, ConfigDir: n.ConfigDir}
}

// handlers returns the OCI runtimes by the names of handlers. The empty name is the default.
func handlers(d *configs.ContainerdConfiguration) map[string]native.Handler {
	out := map[string]native.Handler{}
	for name, o := range d.Runtimes {
		h := native.Handler{Binary: o.Binary, Root: o.Root}
		if h.Binary == "" {
			h.Binary = name
		}
		out[name] = h
		if name == d.DefaultRuntime {
			out[""] = h
		}
	}
	return out
}

// Namespace returns the containerd namespace of a config's native runtime. Agents with different
// root directories have different namespaces, because each removes what it does not know.
func Namespace(cfg *configs.Config) string {
	switch {
	case cfg.Berth.Containerd.Namespace != "":
		return cfg.Berth.Containerd.Namespace
	case filepath.Clean(cfg.RootDir) == defaultRoot:
		return namespace
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(filepath.Clean(cfg.RootDir)))
	return fmt.Sprintf("%s-%x", namespace, h.Sum64())
}

// sameSocket reports whether the native runtime's containerd has the CRI's socket.
func (r *Runtime) sameSocket() bool {
	return Address(r.cfg) == strings.TrimPrefix(r.cfg.Kubelet.ContainerRuntimeEndpoint, unixScheme)
}

// Address returns the path of the socket of a config's containerd for the native runtime.
func Address(cfg *configs.Config) string {
	address := cfg.Berth.Containerd.Address
	if address == "" {
		address = cfg.Kubelet.ContainerRuntimeEndpoint
	}
	return strings.TrimPrefix(address, unixScheme)
}

// reachTimeout bounds the attempt to reach a socket.
const reachTimeout = 3 * time.Second

// reach returns an error of class errdefs.ErrUnavailable if nobody listens on a socket.
func reach(ctx context.Context, path string) error {
	conn, err := (&net.Dialer{Timeout: reachTimeout}).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("reach containerd at %s: %w: %w", path, err, errdefs.ErrUnavailable)
	}
	return conn.Close()
}
