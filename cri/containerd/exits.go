package containerd

import (
	"context"
	"sync"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/streams"
	"github.com/berthd/berth/internal/retry"
)

const (
	// confirmLimit limits how long the event of an exit is held back until the CRI plugin shows the
	// exit.
	confirmLimit = 2 * time.Second
	// confirmFirst and confirmMost limit the pause between two looks, which doubles. For the time
	// confirmSoon the pause stays at confirmShort, and an idle containerd is done within that time.
	// If the pause doubled further, an exit would be reported after up to twice the time.
	confirmFirst = time.Millisecond
	confirmShort = 4 * time.Millisecond
	confirmSoon  = 200 * time.Millisecond
	confirmMost  = 100 * time.Millisecond
)

// reportExits puts the exits of main processes into the box when they happen, until ctx ends or the
// stream breaks. Containerd's CRI plugin reports an exit only after its own cleanup, some tens of
// milliseconds later.
func (r *Runtime) reportExits(ctx context.Context, box *streams.Mailbox) {
	err := r.readEnvelopes(ctx, []string{exitTopic}, func(envelope *apitypes.Envelope) {
		payload, broken := typeurl.UnmarshalAny(envelope.GetEvent())
		if e, ok := payload.(*apievents.TaskExit); broken == nil && ok && e.GetID() == e.GetContainerID() {
			box.Put(exitOf(e))
		}
	})
	if ctx.Err() == nil {
		r.cfg.Logger.Debug("Exits are reported late from now on", "err", err)
	}
}

// exitOf returns the event of an exit that the runtime's lists may not show yet.
func exitOf(e *apievents.TaskExit) cri.Event {
	at := e.GetExitedAt().AsTime()
	exit := &cri.Exit{Code: int32(e.GetExitStatus()), At: at}
	return cri.Event{Type: cri.ContainerStopped, ID: e.GetContainerID(), Time: at, Exit: exit}
}

// confirmer holds exits back until the CRI plugin shows them. It has one goroutine for each
// container that just ended.
type confirmer struct {
	runtime *Runtime
	box     *streams.Mailbox

	mu      sync.Mutex
	waiting map[string]bool
}

// start holds the event back, unless another about the same container is held back already.
func (c *confirmer) start(ctx context.Context, event cri.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[event.ID] {
		return
	}
	err := c.runtime.streams.Go(func() {
		c.await(ctx, event.ID)
		c.mu.Lock()
		delete(c.waiting, event.ID)
		c.mu.Unlock()
		c.box.Put(event)
	})
	c.waiting[event.ID] = err == nil // an error means that the stream is about to end
}

// await returns when the CRI plugin shows that the container or sandbox ended or does not exist,
// when the plugin cannot be asked, or after [confirmLimit].
func (c *confirmer) await(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	pause, began := confirmFirst, time.Now()
	for !c.shown(ctx, id) {
		if !retry.Sleep(ctx, pause) {
			return
		}
		most := confirmShort
		if time.Since(began) > confirmSoon {
			most = confirmMost
		}
		pause = min(2*pause, most)
	}
}

// shown reports whether the CRI plugin shows the end of the container or sandbox.
func (c *confirmer) shown(ctx context.Context, id string) bool {
	status, err := c.runtime.ContainerStatus(ctx, id)
	if err == nil {
		return status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	}
	if !errdefs.IsNotFound(err) {
		return true
	}
	sandbox, err := c.runtime.PodSandboxStatus(ctx, id)
	return err != nil || sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}
