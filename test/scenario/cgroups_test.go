package scenario

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/cgroups"
)

var errFrozen = errors.New("the agent was killed")

// hierarchy is the machine's cgroups.
type hierarchy struct {
	mu   sync.Mutex
	pods map[types.UID]bool
	// limits are the current limits of each pod's cgroup. changes are all changes of the limits, in
	// order.
	limits  map[types.UID]cgroups.Limits
	changes []limited
	// removed is called with each pod whose cgroup is removed, which is the pod's end.
	removed func(types.UID)
}

// limited is a change of a pod's limits.
type limited struct {
	at     time.Time
	uid    types.UID
	limits cgroups.Limits
}

// amounts returns the limits in the units of scripts: shares, microseconds of cpu, MiB of memory.
func amounts(l cgroups.Limits) string {
	return fmt.Sprintf("%d/%d/%d", l.CPUShares, l.CPUQuota, l.Memory>>20)
}

// options are the machine's options for everything that is computed about cgroups.
var options = cgroups.Options{Version: cgroups.V1, CPUQuota: true}

// memory is the memory of the machine, in bytes.
const memory = 16 << 30

func (h *hierarchy) list() []types.UID {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Sorted(maps.Keys(h.pods))
}

// memoryCgroups is one agent's access to a hierarchy.
type memoryCgroups struct {
	of     *hierarchy
	frozen bool // guarded by of.mu
	at     func(after bool)
}

// freeze calls first and then ends the agent's access. No change takes effect during first.
func (c *memoryCgroups) freeze(first func()) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	first()
	c.frozen = true
}

func (c *memoryCgroups) change(f func(pods map[types.UID]bool)) error {
	if c.at != nil {
		c.at(false)
		defer c.at(true)
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.frozen {
		return errFrozen
	}
	f(c.of.pods)
	return nil
}

func (c *memoryCgroups) SetPinned(func(*v1.Pod, *v1.Container) bool) {}
func (c *memoryCgroups) Setup(context.Context) error                 { return nil }

func (c *memoryCgroups) EnsurePod(_ context.Context, pod *v1.Pod) (string, error) {
	limits := cgroups.PodLimits(pod, options)
	return "kubepods-" + string(pod.UID), c.change(func(pods map[types.UID]bool) {
		pods[pod.UID] = true
		if c.of.limits == nil {
			c.of.limits = map[types.UID]cgroups.Limits{}
		}
		if old, ok := c.of.limits[pod.UID]; !ok || amounts(old) != amounts(limits) {
			c.of.limits[pod.UID] = limits
			c.of.changes = append(c.of.changes, limited{time.Now(), pod.UID, limits})
		}
	})
}

func (c *memoryCgroups) RemovePod(_ context.Context, uid types.UID) error {
	return c.change(func(pods map[types.UID]bool) {
		delete(pods, uid)
		delete(c.of.limits, uid)
		c.of.removed(uid)
	})
}

func (c *memoryCgroups) UpdateQoS(context.Context, []*v1.Pod) error { return nil }
func (c *memoryCgroups) Teardown(context.Context) error             { return nil }
func (c *memoryCgroups) Stats() stats.Cgroups                       { return nil }
func (c *memoryCgroups) MemoryUsage(*v1.Pod, string) (int64, error) { return 0, fs.ErrNotExist }

func (c *memoryCgroups) List(context.Context) ([]types.UID, error) {
	return c.of.list(), nil
}

func (c *memoryCgroups) SandboxResources(*v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	return nil, nil
}

func (c *memoryCgroups) ContainerResources(pod *v1.Pod, container *v1.Container) *runtimeapi.LinuxContainerResources {
	return cgroups.ContainerResources(pod, container, memory, options)
}
