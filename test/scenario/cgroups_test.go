package scenario

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var errFrozen = errors.New("the agent was killed")

// hierarchy is the machine's cgroups.
type hierarchy struct {
	mu   sync.Mutex
	pods map[types.UID]bool
}

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

func (c *memoryCgroups) freeze() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
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

func (c *memoryCgroups) Setup(context.Context) error { return nil }

func (c *memoryCgroups) EnsurePod(_ context.Context, pod *v1.Pod) (string, error) {
	return "kubepods-" + string(pod.UID), c.change(func(pods map[types.UID]bool) { pods[pod.UID] = true })
}

func (c *memoryCgroups) RemovePod(_ context.Context, uid types.UID) error {
	return c.change(func(pods map[types.UID]bool) { delete(pods, uid) })
}

func (c *memoryCgroups) UpdateQoS(context.Context, []*v1.Pod) error { return nil }

func (c *memoryCgroups) List(context.Context) ([]types.UID, error) {
	return c.of.list(), nil
}

func (c *memoryCgroups) SandboxResources(*v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	return nil, nil
}

func (c *memoryCgroups) ContainerResources(*v1.Pod, *v1.Container) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{}
}
