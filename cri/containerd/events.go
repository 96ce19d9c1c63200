package containerd

import (
	"context"
	"fmt"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/internal/streams"
)

// exitTopic is the topic of the events about a task's exit.
const exitTopic = "/tasks/exit"

// topics are the containerd events that mean a change of a container or sandbox.
var topics = []string{
	"/tasks/start", exitTopic, "/tasks/oom", "/tasks/delete", "/containers/create", "/containers/delete",
}

// Events returns a stream of container and sandbox changes. If containerd's CRI has events, these
// are the CRI's, and the exits of main processes come before the CRI reports them. Otherwise they
// are containerd's own events. Another runtime's events are those of its CRI. The subscription is
// made before Events returns. Events that nobody has taken yet are kept, one per object and type,
// so that a slow reader never blocks containerd.
func (r *Runtime) Events(ctx context.Context) (<-chan cri.Event, error) {
	version, err := r.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe to events: %w", err)
	}
	if version.GetRuntimeName() != runtimeName {
		return r.Runtime.Events(ctx)
	}
	events, err := r.criEvents(ctx)
	if !errdefs.IsNotImplemented(err) {
		return events, err
	}
	return r.ownEvents(ctx)
}

// criEvents opens the CRI's event stream, and beside it a stream of exits (exits.go).
func (r *Runtime) criEvents(ctx context.Context) (<-chan cri.Event, error) {
	subscribed := make(chan struct{})
	return r.streams.Open(ctx, func(ctx context.Context, box *streams.Mailbox) error {
		if err := r.streams.Go(func() { r.reportExits(ctx, box) }); err != nil {
			return err
		}
		events, err := r.Runtime.Events(ctx)
		if err != nil {
			return err
		}
		close(subscribed)
		for event := range events { // also ends with ctx
			box.Put(event)
		}
		return errStreamEnded
	}, func(ctx context.Context, broken <-chan error) error {
		select {
		case <-subscribed:
			return nil
		case err := <-broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// errStreamEnded is the end of an event stream. The CRI's client has logged the reason.
var errStreamEnded = fmt.Errorf("the event stream ended: %w", errdefs.ErrUnavailable)

// ownEvents opens containerd's own event stream, on the runtime service's socket.
//
// Containerd reports an exit to all subscribers at the same moment, including its CRI plugin, which
// then needs some milliseconds to get the exit code. In between, the CRI still shows the container
// as running. So an exit is reported twice: at once, with how it ended, and again when the CRI
// plugin has it.
func (r *Runtime) ownEvents(ctx context.Context) (<-chan cri.Event, error) {
	start := time.Now()
	events, err := r.streams.Open(ctx, func(ctx context.Context, box *streams.Mailbox) error {
		confirm := &confirmer{runtime: r, box: box, waiting: make(map[string]bool)}
		err := r.readEnvelopes(ctx, topics, func(envelope *apitypes.Envelope) {
			r.readEnvelope(ctx, envelope, box, confirm)
		})
		if ctx.Err() == nil {
			r.cfg.Logger.Info("The runtime's event stream ended", "err", err)
		}
		return err
	}, streams.Answered(func(ctx context.Context) error {
		_, err := r.Version(ctx)
		return err
	}, 0))
	r.cfg.Observe("get_container_events", time.Since(start), err)
	if err != nil {
		return nil, fmt.Errorf("subscribe to events of containerd: %w", err)
	}
	return events, nil
}

// readEnvelopes calls read with each event of the topics, in the CRI's namespace, until the stream
// breaks. It returns the reason, classified.
func (r *Runtime) readEnvelopes(ctx context.Context, topics []string, read func(*apitypes.Envelope)) error {
	filters := make([]string, 0, len(topics))
	for _, topic := range topics {
		filters = append(filters, fmt.Sprintf("namespace==%s,topic==%q", criNamespace, topic))
	}
	client := eventsapi.NewEventsClient(r.conn)
	stream, err := client.Subscribe(withNamespace(ctx), &eventsapi.SubscribeRequest{Filters: filters})
	for err == nil {
		var envelope *apitypes.Envelope
		if envelope, err = stream.Recv(); err == nil {
			read(envelope)
		}
	}
	return classify.Error("get_container_events", err)
}

// readEnvelope puts containerd's event into the box, at once or after its confirmation.
func (r *Runtime) readEnvelope(
	ctx context.Context, envelope *apitypes.Envelope, box *streams.Mailbox, confirm *confirmer,
) {
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
			box.Put(exitOf(e))
		}
		confirm.start(ctx, event)
	} else {
		box.Put(event)
	}
}

// fromContainerd translates a containerd event. exited says that the event is about the end of a
// main process. ok says that the event is about a container or sandbox. Other events are about
// commands: a command that is run in a container has its own start and end.
func fromContainerd(payload any) (event cri.Event, exited, ok bool) {
	switch e := payload.(type) {
	case *apievents.ContainerCreate:
		return cri.Event{Type: cri.ContainerCreated, ID: e.GetID()}, false, true
	case *apievents.ContainerDelete:
		return cri.Event{Type: cri.ContainerDeleted, ID: e.GetID()}, false, true
	case *apievents.TaskStart:
		return cri.Event{Type: cri.ContainerStarted, ID: e.GetContainerID()}, false, true
	case *apievents.TaskOOM: // of any process in it; the container may continue to run
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
