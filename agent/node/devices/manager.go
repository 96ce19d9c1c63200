package devices

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"

	"github.com/berthd/berth/agent/node/devices/checkpoint"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/notify"
)

// absentGrace is how long the devices of a plugin that is gone still count as the node's capacity.
// It is a kubelet's.
const absentGrace = 5 * time.Minute

// Config configures a [Manager].
type Config struct {
	// Dir is the directory of the plugins' sockets and of the checkpoint file.
	Dir string
	// AllocateTimeout bounds a request for devices; 0 means a minute.
	AllocateTimeout time.Duration
	// Nodes are the machine's NUMA nodes, if the topology manager wants to know those of devices.
	Nodes topology.Mask
	// ByClaim says that a container may have an extended resource by a resource claim (feature gate
	// DRAExtendedResource). Then it gets none of a plugin.
	ByClaim bool
}

// Metrics are the manager's metrics.
type Metrics interface {
	DevicePluginRegistered(resource string)
	DevicesAllocated(resource string, took time.Duration)
}

// Deps are what a manager calls.
type Deps struct {
	// Holders returns the pods that have not ended: true for those that are being ended. known is
	// false while pods of an earlier run may be missing: then nobody loses devices.
	Holders func() (holders map[types.UID]bool, known bool)
	// Changed is called after the amount of a resource has changed.
	Changed func()
	// Affected is called for each pod whose devices have changed their health.
	Affected func(uid types.UID)
	// Event records an event about the node.
	Event   func(kind, reason, message string)
	Metrics Metrics
	Logger  *slog.Logger
}

// Manager has the node's devices. Make it with [New].
type Manager struct {
	cfg  Config
	deps Deps
	log  *slog.Logger

	// writing is held while the checkpoint is written, so that the last content wins.
	writing sync.Mutex
	// recheck makes Run compute again when an absent resource is given up.
	recheck notify.Signal

	mu        sync.Mutex
	resources map[string]*resource
	// fresh says that the directory had no checkpoint file, and has none yet.
	fresh bool
	// pods has what is allocated: by pod, container and resource.
	pods map[types.UID]map[string]map[string]*allocation
	// running is the context of the plugins' goroutines, nil while Run does not run.
	running context.Context //nolint:containedctx // the life of Run: plugins outlive their registration
	plugins sync.WaitGroup
	// unserved is why plugins cannot register; nil if they can, or if nobody has tried to serve them.
	unserved error
}

// resource is one resource of the node, of which a plugin has or had devices.
type resource struct {
	devices map[string]device
	options *pluginapi.DevicePluginOptions
	// plugin is nil while none is connected: since absent, which is zero if it was given up.
	plugin *plugin
	absent time.Time
}

// device is one device, as its plugin described it last.
type device struct {
	healthy bool
	nodes   []int64
}

// allocation is what a container has of one resource. response is nil while the plugin is asked.
type allocation struct {
	ids      checkpoint.DevicesPerNUMA
	response *pluginapi.ContainerAllocateResponse
}

// New returns a manager with what the checkpoint file has. A file that cannot be read is reported,
// and the next change replaces it.
func New(cfg Config, deps Deps) *Manager {
	if cfg.AllocateTimeout == 0 {
		cfg.AllocateTimeout = time.Minute
	}
	m := &Manager{
		cfg: cfg, deps: deps, log: deps.Logger, recheck: notify.New(),
		resources: map[string]*resource{}, pods: map[types.UID]map[string]map[string]*allocation{},
	}
	if _, err := os.Lstat(m.checkpointFile()); errors.Is(err, fs.ErrNotExist) {
		m.fresh = true
	}
	if err := m.restore(); err != nil {
		m.log.Error("which pods have which devices is not known: devices may be given to two pods", "err", err)
		deps.Event(v1.EventTypeWarning, "DeviceCheckpointUnreadable", err.Error())
	}
	return m
}

// restore reads the checkpoint file. The resources that it names have no devices until their
// plugins have registered again.
func (m *Manager) restore() error {
	entries, registered, err := checkpoint.Read(m.checkpointFile())
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		response := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, response); err != nil {
			errs = append(errs, err)
			continue
		}
		m.put(types.UID(e.PodUID), e.ContainerName, e.ResourceName, &allocation{e.DeviceIDs, response})
	}
	for name := range registered {
		m.resources[name] = &resource{devices: map[string]device{}, absent: time.Now()}
	}
	return errors.Join(errs...)
}

func (m *Manager) checkpointFile() string { return filepath.Join(m.cfg.Dir, checkpoint.File) }

// put notes what a container has; m.mu is held, or nobody else knows m yet.
func (m *Manager) put(uid types.UID, container, name string, a *allocation) {
	if m.pods[uid] == nil {
		m.pods[uid] = map[string]map[string]*allocation{}
	}
	if m.pods[uid][container] == nil {
		m.pods[uid][container] = map[string]*allocation{}
	}
	m.pods[uid][container][name] = a
}

// save writes the checkpoint file.
func (m *Manager) save() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	entries, registered, err := m.content()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("making the directory of device plugins: %w", err)
	}
	return checkpoint.Write(m.checkpointFile(), entries, registered)
}

// content returns the content of the checkpoint file, in a steady order.
func (m *Manager) content() (entries []checkpoint.PodDevicesEntry, registered map[string][]string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		for _, container := range slices.Sorted(maps.Keys(m.pods[uid])) {
			for _, name := range slices.Sorted(maps.Keys(m.pods[uid][container])) {
				a := m.pods[uid][container][name]
				if a.response == nil {
					continue
				}
				response, err := proto.Marshal(a.response)
				if err != nil {
					return nil, nil, err
				}
				entries = append(entries, checkpoint.PodDevicesEntry{
					PodUID: string(uid), ContainerName: container, ResourceName: name, DeviceIDs: a.ids, AllocResp: response,
				})
			}
		}
	}
	registered = map[string][]string{}
	for name, r := range m.resources {
		if !r.gone() {
			registered[name] = r.healthy()
		}
	}
	return entries, registered, nil
}

// saved writes the checkpoint file, and logs a failure.
func (m *Manager) saved() {
	if err := m.save(); err != nil {
		m.log.Error("the devices of pods are not on the disk: after a restart of the agent they are not known", "err", err)
	}
}

// gone reports whether the resource's plugin was given up.
func (r *resource) gone() bool { return r.plugin == nil && r.absent.IsZero() }

// healthy returns the ids of the healthy devices, sorted.
func (r *resource) healthy() []string {
	out := []string{}
	for id, d := range r.devices {
		if d.healthy {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Capacity returns the node's devices by resource, and how many of them are healthy. A resource
// whose plugin is gone for good has none.
func (m *Manager) Capacity() (capacity, allocatable v1.ResourceList) {
	m.mu.Lock()
	defer m.mu.Unlock()
	capacity, allocatable = v1.ResourceList{}, v1.ResourceList{}
	for name, r := range m.resources {
		all, healthy := len(r.devices), len(r.healthy())
		if r.gone() {
			all, healthy = 0, 0
		}
		capacity[v1.ResourceName(name)] = *apiresource.NewQuantity(int64(all), apiresource.DecimalSI)
		allocatable[v1.ResourceName(name)] = *apiresource.NewQuantity(int64(healthy), apiresource.DecimalSI)
	}
	return capacity, allocatable
}

// Counted returns the extended resources that admission counts, of those that the Node object has
// for pods. It leaves out those whose devices this manager gives out, and has none of a resource
// whose plugin was given up. But there is at least what containers have: they may go on.
func (m *Manager) Counted(object v1.ResourceList) v1.ResourceList {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := v1.ResourceList{}
	for name, amount := range object {
		if helper.IsExtendedResourceName(name) {
			out[name] = amount
		}
	}
	for name, r := range m.resources {
		delete(out, v1.ResourceName(name))
		if r.gone() {
			out[v1.ResourceName(name)] = *apiresource.NewQuantity(0, apiresource.DecimalSI)
		}
	}
	for name, amount := range out {
		if given := int64(len(m.taken(string(name)))); amount.CmpInt64(given) < 0 {
			out[name] = *apiresource.NewQuantity(given, apiresource.DecimalSI)
		}
	}
	return out
}

// taken returns the devices of a resource that containers have; m.mu is held.
func (m *Manager) taken(name string) map[string]bool {
	out := map[string]bool{}
	for _, resources := range m.pods {
		for _, c := range resources {
			if a := c[name]; a != nil {
				for _, id := range a.list() {
					out[id] = true
				}
			}
		}
	}
	return out
}

// Fresh reports whether this machine has not registered in a cluster yet: there was no checkpoint
// file. What a Node object of its name has of extended resources was another machine's.
func (m *Manager) Fresh() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fresh
}

// Registered says that the machine has registered in a cluster. It writes the checkpoint file, so
// that later agents know.
func (m *Manager) Registered() {
	m.mu.Lock()
	fresh := m.fresh
	m.fresh = false
	m.mu.Unlock()
	if fresh {
		m.saved()
	}
}

// giveUp gives up the plugins that have been absent for too long, and returns when the next one
// has; the zero time for never.
func (m *Manager) giveUp(now time.Time) (next time.Time, given bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.resources {
		if r.plugin != nil || r.absent.IsZero() {
			continue
		}
		if at := r.absent.Add(absentGrace); now.Before(at) {
			if next.IsZero() || at.Before(next) {
				next = at
			}
			continue
		}
		m.log.Warn("device plugin is given up: the node has none of its devices any more", "resource", name)
		r.absent, r.devices, given = time.Time{}, map[string]device{}, true
	}
	return next, given
}
