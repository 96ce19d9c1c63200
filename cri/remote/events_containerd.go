package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

const (
	// criNamespace is the containerd namespace that its CRI plugin works in.
	criNamespace = "k8s.io"
	// namespaceHeader is the gRPC header that carries a containerd namespace.
	namespaceHeader = "containerd-namespace"
	// confirmLimit bounds how long the event of an exit is held back until the CRI plugin knows of it.
	confirmLimit = 2 * time.Second
	// confirmFirst and confirmMost bound the pause between two looks; it doubles. Within confirmSoon, in which an idle runtime is done, it stays
	// at confirmShort: a pause that doubled on would make the news of a death up to twice as old.
	confirmFirst = time.Millisecond
	confirmShort = 4 * time.Millisecond
	confirmSoon  = 200 * time.Millisecond
	confirmMost  = 100 * time.Millisecond
)

// topics are the containerd events that mean a change of a container or sandbox.
var topics = []string{"/tasks/start", "/tasks/exit", "/tasks/oom", "/tasks/delete", "/containers/create", "/containers/delete"}

// subscribeContainerd opens containerd's own event stream, on the runtime service's socket.
//
// Containerd tells everyone of an exit at the same moment, its CRI plugin included, which then needs some milliseconds to learn the exit
// code: who looks in between sees the container still running. So an exit is told of twice: at once, with how it ended, and again when the CRI plugin
// has it.
func (r *Runtime) subscribeContainerd(ctx context.Context) (<-chan cri.Event, error) {
	filters := make([]string, 0, len(topics))
	for _, topic := range topics {
		filters = append(filters, fmt.Sprintf("namespace==%s,topic==%q", criNamespace, topic))
	}
	return r.subscribe(ctx, false, func(ctx context.Context, box *mailbox) error {
		confirm := &confirmer{runtime: r, box: box, waiting: make(map[string]bool)}
		header := metadata.AppendToOutgoingContext(ctx, namespaceHeader, criNamespace)
		stream, err := eventsapi.NewEventsClient(r.conn).Subscribe(header, &eventsapi.SubscribeRequest{Filters: filters})
		for err == nil {
			var envelope *apitypes.Envelope
			if envelope, err = stream.Recv(); err == nil {
				r.readEnvelope(ctx, envelope, box, confirm)
			}
		}
		return classify("get_container_events", err)
	}, func() {})
}

// tellExits puts the exits of main processes into the box when they happen, until ctx ends or the stream breaks: containerd's CRI plugin tells of one
// only when it has cleaned up after it, some tens of milliseconds later.
func (r *Runtime) tellExits(ctx context.Context, box *mailbox) {
	header := metadata.AppendToOutgoingContext(ctx, namespaceHeader, criNamespace)
	stream, err := eventsapi.NewEventsClient(r.conn).Subscribe(header, &eventsapi.SubscribeRequest{
		Filters: []string{fmt.Sprintf("namespace==%s,topic==%q", criNamespace, "/tasks/exit")},
	})
	for err == nil {
		var envelope *apitypes.Envelope
		if envelope, err = stream.Recv(); err != nil {
			break
		}
		payload, broken := typeurl.UnmarshalAny(envelope.GetEvent())
		if e, ok := payload.(*apievents.TaskExit); broken == nil && ok && e.GetID() == e.GetContainerID() {
			box.put(exitOf(e))
		}
	}
	if ctx.Err() == nil {
		r.cfg.Logger.Debug("Exits are told of late from now on", "err", classify("get_container_events", err))
	}
}

// exitOf is the event of an exit that the runtime's lists may not show yet.
func exitOf(e *apievents.TaskExit) cri.Event {
	at := e.GetExitedAt().AsTime()
	return cri.Event{Type: cri.ContainerStopped, ID: e.GetContainerID(), Time: at, Exit: &cri.Exit{Code: int32(e.GetExitStatus()), At: at}}
}

// readEnvelope puts containerd's event into the box, at once or once it is confirmed.
func (r *Runtime) readEnvelope(ctx context.Context, envelope *apitypes.Envelope, box *mailbox, confirm *confirmer) {
	payload, err := typeurl.UnmarshalAny(envelope.GetEvent())
	if err != nil {
		r.cfg.Logger.Debug("Skipped an event of containerd", "topic", envelope.GetTopic(), "err", err)
		return
	}
	event, exited, ok := fromContainerd(payload)
	if !ok {
		return
	}
	if ts := envelope.GetTimestamp(); ts != nil {
		event.Time = ts.AsTime()
	}
	if exited {
		if e, ok := payload.(*apievents.TaskExit); ok {
			box.put(exitOf(e))
		}
		confirm.start(ctx, event)
	} else {
		box.put(event)
	}
}

// fromContainerd translates a containerd event. Exited says that it is about a main process' end, ok that it is about a container or
// sandbox at all (a command run in a container starts and ends with events of its own).
func fromContainerd(payload any) (event cri.Event, exited, ok bool) {
	switch e := payload.(type) {
	case *apievents.ContainerCreate:
		return cri.Event{Type: cri.ContainerCreated, ID: e.GetID()}, false, true
	case *apievents.ContainerDelete:
		return cri.Event{Type: cri.ContainerDeleted, ID: e.GetID()}, false, true
	case *apievents.TaskStart:
		return cri.Event{Type: cri.ContainerStarted, ID: e.GetContainerID()}, false, true
	case *apievents.TaskOOM: // of any process in it; the container may live on
		return cri.Event{Type: cri.ContainerStopped, ID: e.GetContainerID()}, false, true
	case *apievents.TaskExit:
		return cri.Event{Type: cri.ContainerStopped, ID: e.GetContainerID()}, true, e.GetID() == e.GetContainerID()
	case *apievents.TaskDelete:
		id := e.GetID()
		return cri.Event{Type: cri.ContainerStopped, ID: e.GetContainerID()}, true, id == "" || id == e.GetContainerID()
	default:
		return cri.Event{}, false, false
	}
}

// confirmer holds exits back until the CRI plugin shows them: one goroutine for each container that just ended.
type confirmer struct {
	runtime *Runtime
	box     *mailbox

	mu      sync.Mutex
	waiting map[string]bool
}

// start holds the event back, unless one about the same container is held back already.
func (c *confirmer) start(ctx context.Context, event cri.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[event.ID] {
		return
	}
	err := c.runtime.spawn(func() {
		c.await(ctx, event.ID)
		c.mu.Lock()
		delete(c.waiting, event.ID)
		c.mu.Unlock()
		c.box.put(event)
	})
	c.waiting[event.ID] = err == nil // an error means that the stream is about to end
}

// await returns when the CRI plugin shows the container or sandbox as ended or gone, when it cannot be asked, or after [confirmLimit].
func (c *confirmer) await(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, confirmLimit)
	defer cancel()
	pause, began := confirmFirst, time.Now()
	for !c.shown(ctx, id) {
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		most := confirmShort
		if time.Since(began) > confirmSoon {
			most = confirmMost
		}
		pause = min(2*pause, most)
	}
}

// shown says whether the CRI plugin knows the end of the container or sandbox.
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
