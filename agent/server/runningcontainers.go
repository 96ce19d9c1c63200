package server

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/flight"
)

// runningValid is how long the runtime's answer holds that a container runs. It is less than the
// time after which who follows a log asks again, so that a single follower gets a new one.
const runningValid = 900 * time.Millisecond

// runningContainers asks the runtime about containers whose logs are read. Many who follow the log
// of one container cost as much as one. It is safe for concurrent use.
type runningContainers struct {
	runtime Runtime
	// asking are the questions under way, by the container's id.
	asking flight.Group[*runtimeapi.ContainerStatus]

	mu sync.Mutex
	// known are the answers that a container runs, by its id.
	known map[string]runningContainer
}

// runningContainer is an answer that a container runs, and when it was asked for.
type runningContainer struct {
	asked  time.Time
	status *runtimeapi.ContainerStatus
}

func newRunningContainers(r Runtime, log *slog.Logger) *runningContainers {
	return &runningContainers{
		runtime: r,
		asking:  flight.Group[*runtimeapi.ContainerStatus]{Log: log},
		known:   map[string]runningContainer{},
	}
}

// status returns the status of a container. That it runs may be [runningValid] old, and no other
// answer is older than the question that was under way. The caller must not modify the result.
func (c *runningContainers) status(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if st := c.recent(id); st != nil {
		return st, nil
	}
	return c.asking.Do(ctx, id, func(ctx context.Context) (*runtimeapi.ContainerStatus, error) {
		asked := time.Now()
		st, err := c.runtime.ContainerStatus(ctx, id)
		if err != nil {
			return nil, err
		}
		if st.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			c.keep(id, runningContainer{asked, st})
		}
		return st, nil
	})
}

// recent returns the answer that a container runs, if that is not too old.
func (c *runningContainers) recent(id string) *runtimeapi.ContainerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[id]; ok && time.Since(k.asked) < runningValid {
		return k.status
	}
	return nil
}

// keep keeps an answer, and forgets those that are too old.
func (c *runningContainers) keep(id string, k runningContainer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(_ string, old runningContainer) bool { return time.Since(old.asked) >= runningValid })
	c.known[id] = k
}
