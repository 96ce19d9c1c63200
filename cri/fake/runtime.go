package fake

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// The fake's name and versions, which Version returns.
const (
	Name    = "fake"
	Version = "v2.4.0" // of the containerd whose semantics the fake has
)

// Config is how a fake node is set up. With the zero value the node works, and it can pull every
// image at once.
type Config struct {
	// Images are the images that the node has or can pull.
	Images []Image
	// StrictImages makes a pull fail for every image that is not in Images. Without it, such a pull
	// succeeds at once.
	StrictImages bool
	// Script returns what a container does. If ok is false, [Runtime.Script] decides, and then the
	// container's command. No lock is held during the call.
	Script func(sandbox *runtimeapi.PodSandboxConfig, container *runtimeapi.ContainerConfig) (b Behavior, ok bool)
	// PodCIDR is the subnet of the pods' addresses. The default is 10.88.0.0/16.
	PodCIDR netip.Prefix
	// CgroupDriver is what RuntimeConfig returns. The zero value is systemd.
	CgroupDriver runtimeapi.CgroupDriver
	// NoEvents makes Events return that it is not implemented, as containerd before 1.7 does.
	NoEvents bool
	// WriteLogs makes containers write their output to log files. If the log directory is missing,
	// the start then fails.
	WriteLogs bool
}

// Runtime is one connection to a fake node. It implements [cri.Runtime].
type Runtime struct {
	node *node
	conn *connection
}

var _ cri.Runtime = (*Runtime)(nil)

// connection is one agent's connection. The node's lock guards it.
type connection struct {
	severed bool
	// frozen, if not nil, holds back all answers until it is closed.
	frozen chan struct{}
}

// node is what all connections share.
type node struct {
	cfg Config

	mu         sync.Mutex
	down       bool
	seq        int // counts everything that needs an order or an id
	journal    []*Call
	flights    map[*flight]struct{}
	faults     []*plantedFault
	streams    map[*stream]struct{}
	conditions map[string]*runtimeapi.RuntimeCondition
	store
	history
}

// store is what the runtime keeps.
type store struct {
	sandboxes  map[string]*sandbox
	containers map[string]*container
	images     map[string]*image // by normalised reference
	leases     map[netip.Addr]string
	lastIP     netip.Addr
	scripts    map[string][]Behavior
}

// New returns a connection to a new fake node.
func New(cfg Config) *Runtime {
	if !cfg.PodCIDR.IsValid() {
		cfg.PodCIDR = netip.MustParsePrefix("10.88.0.0/16")
	}
	n := &node{
		cfg:        cfg,
		flights:    map[*flight]struct{}{},
		streams:    map[*stream]struct{}{},
		conditions: map[string]*runtimeapi.RuntimeCondition{},
		store: store{
			sandboxes:  map[string]*sandbox{},
			containers: map[string]*container{},
			images:     map[string]*image{},
			leases:     map[netip.Addr]string{},
			lastIP:     cfg.PodCIDR.Masked().Addr().Next(), // the first address is the bridge's
			scripts:    map[string][]Behavior{},
		},
		history: newHistory(),
	}
	r := &Runtime{node: n, conn: &connection{}}
	r.SetCondition(runtimeapi.RuntimeReady, true, "", "")
	r.SetCondition(runtimeapi.NetworkReady, true, "", "")
	for _, i := range cfg.Images {
		r.SetImage(i)
	}
	return r
}

// Version returns the fake's name and versions.
func (r *Runtime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return call(ctx, r, Call{Method: "Version", Request: &runtimeapi.VersionRequest{}},
		func(context.Context) (*runtimeapi.VersionResponse, error) {
			return &runtimeapi.VersionResponse{
				Version: "0.1.0", RuntimeName: Name, RuntimeVersion: Version, RuntimeApiVersion: "v1",
			}, nil
		})
}

// Status returns the node's conditions ([Runtime.SetCondition]) and its handlers. The default
// handler supports every feature, and the handler "plain" supports none.
func (r *Runtime) Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error) {
	return call(ctx, r, Call{Method: "Status", Request: &runtimeapi.StatusRequest{Verbose: verbose}},
		func(context.Context) (*runtimeapi.StatusResponse, error) {
			r.node.mu.Lock()
			defer r.node.mu.Unlock()
			features := &runtimeapi.RuntimeHandlerFeatures{RecursiveReadOnlyMounts: true, UserNamespaces: true}
			response := &runtimeapi.StatusResponse{
				Status: &runtimeapi.RuntimeStatus{},
				RuntimeHandlers: []*runtimeapi.RuntimeHandler{
					{Name: "", Features: features},
					{Name: "runc", Features: features},
					{Name: "plain", Features: &runtimeapi.RuntimeHandlerFeatures{}},
				},
				Features: &runtimeapi.RuntimeFeatures{SupplementalGroupsPolicy: true},
			}
			for _, kind := range sortedKeys(r.node.conditions) {
				response.Status.Conditions = append(response.Status.Conditions, clone(r.node.conditions[kind]))
			}
			if verbose {
				response.Info = map[string]string{"config": "{}"}
			}
			return response, nil
		})
}

// RuntimeConfig returns the configured cgroup driver.
func (r *Runtime) RuntimeConfig(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return call(ctx, r, Call{Method: "RuntimeConfig", Request: &runtimeapi.RuntimeConfigRequest{}},
		func(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
			return &runtimeapi.RuntimeConfigResponse{
				Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: r.node.cfg.CgroupDriver},
			}, nil
		})
}

// UpdateRuntimeConfig has no effect. The request is in the journal ([Runtime.Calls]).
func (r *Runtime) UpdateRuntimeConfig(ctx context.Context, config *runtimeapi.RuntimeConfig) error {
	_, err := call(ctx, r,
		Call{Method: "UpdateRuntimeConfig", Request: &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: config}},
		func(context.Context) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
			return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
		})
	return err
}

// SetCondition sets a condition that Status returns, such as runtimeapi.NetworkReady.
func (r *Runtime) SetCondition(kind string, status bool, reason, message string) {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.node.conditions[kind] = &runtimeapi.RuntimeCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

// sleep waits for d, or until the call ends.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unknown returns an error of the class that containerd uses when no other class fits.
func unknown(message string) error {
	return errdefs.ErrUnknown.WithMessage(message)
}
