package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berthd/berth/agent/node/plugins"
)

// infoTimeout bounds the call that asks a driver for its identity on this node.
const infoTimeout = 30 * time.Second

// Driver is a registered driver.
type Driver struct {
	// Name is the driver's name. Endpoint is its socket.
	Name, Endpoint string
	// NodeID is the driver's name for this node.
	NodeID string
	// Topology is this node's place in the driver's topology.
	Topology map[string]string
	// MaxVolumes is how many of its volumes the node can have; 0 if no bound is known.
	MaxVolumes int64
	// Expands says that the driver expands volumes on the node, or that it did not say whether it
	// does.
	Expands bool

	socket string
}

// NotRegistered is the error of a driver that is not registered on this node, or not at the moment.
type NotRegistered struct{ Driver string }

// Error uses the kubelet's words.
func (e *NotRegistered) Error() string {
	return fmt.Sprintf("driver name %s not found in the list of registered CSI drivers", e.Driver)
}

// Drivers are the registered drivers: a plugins.Handler. Make it with [NewDrivers].
type Drivers struct {
	changed func()
	calls   Observer
	log     *slog.Logger

	mu     sync.Mutex
	byName map[string]Driver
	// gone are the names of drivers that were registered and are not any more.
	gone map[string]bool
}

// Observer gets every call to a driver: the driver's name, the method as gRPC has it, the code of
// its result, and how long it took.
type Observer func(driver, method, code string, took time.Duration)

// NewDrivers returns an empty set. changed is called after each change of the set, and must not
// block. observe may be nil.
func NewDrivers(changed func(), observe Observer, log *slog.Logger) *Drivers {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Drivers{changed: changed, calls: observe, log: log, byName: map[string]Driver{}, gone: map[string]bool{}}
}

// Register adds a driver after asking for its identity on this node.
func (d *Drivers) Register(ctx context.Context, p plugins.Plugin) error {
	if err := supported(p); err != nil {
		return err
	}
	if err := checkName(p.Name); err != nil {
		return err
	}
	driver := Driver{Name: p.Name, Endpoint: p.Endpoint, socket: p.Socket}
	info, err := d.info(ctx, driver)
	if err != nil {
		return fmt.Errorf("error during CSI NodeGetInfo() call: %w", err)
	}
	if info.GetNodeId() == "" {
		return fmt.Errorf("CSI driver %s does not say what it calls this node", p.Name)
	}
	driver.NodeID, driver.Topology, driver.MaxVolumes = info.GetNodeId(), info.GetAccessibleTopology().GetSegments(),
		max(info.GetMaxVolumesPerNode(), 0)
	driver.Expands = d.expands(ctx, driver)
	d.mu.Lock()
	d.byName[p.Name] = driver
	delete(d.gone, p.Name)
	d.mu.Unlock()
	d.changed()
	return nil
}

func (d *Drivers) info(ctx context.Context, driver Driver) (*csiapi.NodeGetInfoResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	c, err := d.connect(driver)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return c.node.NodeGetInfo(ctx, &csiapi.NodeGetInfoRequest{})
}

// expands reports whether a driver expands volumes on the node, or does not say.
func (d *Drivers) expands(ctx context.Context, driver Driver) bool {
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	c, err := d.connect(driver)
	if err != nil {
		return true
	}
	defer c.close()
	can, err := c.capabilities(ctx)
	return err != nil || can[expands]
}

// Deregister removes a driver, unless it has registered on another socket meanwhile.
func (d *Drivers) Deregister(p plugins.Plugin) {
	d.mu.Lock()
	mine := d.byName[p.Name].socket == p.Socket
	if mine {
		delete(d.byName, p.Name)
		d.gone[p.Name] = true
	}
	d.mu.Unlock()
	if mine {
		d.changed()
	}
}

// Get returns a driver. The error is a [NotRegistered].
func (d *Drivers) Get(name string) (Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	driver, ok := d.byName[name]
	if !ok {
		return Driver{}, &NotRegistered{Driver: name}
	}
	return driver, nil
}

// List returns all drivers by name, and the names of those that were registered and are not any
// more.
func (d *Drivers) List() (here []Driver, gone []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	here = slices.SortedFunc(maps.Values(d.byName), func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	return here, slices.Sorted(maps.Keys(d.gone))
}

// supported refuses a driver that does not support version 1 of the interface.
func supported(p plugins.Plugin) error {
	for _, v := range p.Versions {
		if major, _, _ := strings.Cut(strings.TrimPrefix(v, "v"), "."); major == "1" {
			return nil
		}
	}
	return fmt.Errorf("CSI driver %s speaks the versions %q of the interface, and this node 1.x", p.Name, p.Versions)
}

// checkName refuses the name of a driver or a volume that is not a single path component.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 {
		return fmt.Errorf("the name %q cannot be a file name", name)
	}
	return nil
}

// isGone reports whether a driver's error means that it has no such volume.
func isGone(err error) bool {
	return status.Code(errors.Unwrap(err)) == codes.NotFound || status.Code(err) == codes.NotFound
}

// isSilence reports whether a driver has not answered in time.
func isSilence(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}
