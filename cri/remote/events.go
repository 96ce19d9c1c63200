package remote

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/classify"
	"github.com/berthd/berth/cri/internal/streams"
)

// support is what is known of a runtime's GetContainerEvents.
type support int

const (
	supportUnknown support = iota // not tried yet
	supported                     // containerd from 1.7, CRI-O if configured
	unsupported
)

// eventsTrial is how long the first event stream to an unknown runtime may stay silent before it
// counts as supported. A runtime without events refuses at once. A runtime with events says nothing
// until something happens.
const eventsTrial = 250 * time.Millisecond

// containerdName is the name of containerd's CRI plugin in Version.
const containerdName = "containerd"

// Events returns a stream of container and sandbox changes. It returns errdefs.IsNotImplemented if
// the runtime's CRI has none, and errdefs.IsUnavailable if the runtime is away. The subscription is
// made before Events returns. Events that nobody has taken yet are kept, one per object and type,
// so that a slow reader never blocks the runtime. Containerd before 2.0 gives each event to only
// one of its subscribers. Two agents on one such containerd each see half of the events, and depend
// on relisting.
func (r *Runtime) Events(ctx context.Context) (<-chan cri.Event, error) {
	version, err := r.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe to events: %w", err)
	}
	key := version.GetRuntimeName() + " " + version.GetRuntimeVersion()
	known := r.eventSupport(key, version)
	if known == unsupported {
		return nil, fmt.Errorf("subscribe to events of %s: %w", key, errdefs.ErrNotImplemented)
	}
	events, err := r.subscribe(ctx, key, known == supportUnknown)
	if errdefs.IsNotImplemented(err) {
		r.cfg.Logger.Info("The runtime has no CRI events", "runtime", key, "err", err)
	}
	return events, err
}

// eventSupport returns what is known about the runtime's events, from an earlier attempt or from
// its version.
func (r *Runtime) eventSupport(key string, version *runtimeapi.VersionResponse) support {
	r.mu.Lock()
	defer r.mu.Unlock()
	if known := r.events[key]; known != supportUnknown {
		return known
	}
	if version.GetRuntimeName() != containerdName {
		return supportUnknown
	}
	major, minor, ok := parseVersion(version.GetRuntimeVersion())
	switch {
	case !ok:
		return supportUnknown
	case major == 1 && minor < 7:
		return unsupported
	default:
		return supported
	}
}

func (r *Runtime) setEventSupport(key string, found support) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[key] = found
}

// parseVersion reads "v1.6.20", "1.6.20~ds1" and the like.
func parseVersion(s string) (major, minor int, ok bool) {
	n, _ := fmt.Sscanf(strings.TrimPrefix(s, "v"), "%d.%d", &major, &minor)
	return major, minor, n == 2
}

// subscribe opens a GetContainerEvents stream to the runtime that key names. With trial it waits
// for the runtime to refuse the stream, at most [eventsTrial]. It remembers what it finds out.
func (r *Runtime) subscribe(ctx context.Context, key string, trial bool) (<-chan cri.Event, error) {
	wait := time.Duration(0)
	if trial {
		wait = eventsTrial
	}
	start := time.Now()
	answered := streams.Answered(func(ctx context.Context) error {
		_, err := r.Version(ctx)
		return err
	}, wait)
	events, err := r.streams.Open(ctx, func(ctx context.Context, box *streams.Mailbox) error {
		err := r.readEvents(ctx, box)
		if errdefs.IsNotImplemented(err) {
			r.setEventSupport(key, unsupported)
		}
		if ctx.Err() == nil {
			r.cfg.Logger.Info("The runtime's event stream ended", "err", err)
		}
		return err
	}, func(ctx context.Context, broken <-chan error) error {
		err := answered(ctx, broken)
		if err == nil {
			r.setEventSupport(key, supported)
		}
		return err
	})
	r.cfg.Observe("get_container_events", time.Since(start), err)
	if err != nil {
		return nil, fmt.Errorf("subscribe to events: %w", err)
	}
	return events, nil
}

// readEvents puts the runtime's events into the box until the stream breaks, and returns the
// reason.
func (r *Runtime) readEvents(ctx context.Context, box *streams.Mailbox) error {
	stream, err := r.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	for err == nil {
		var msg *runtimeapi.ContainerEventResponse
		if msg, err = stream.Recv(); err == nil {
			box.Put(fromCRI(msg))
		}
	}
	return classify.Error("get_container_events", err)
}

// fromCRI translates a CRI event.
func fromCRI(msg *runtimeapi.ContainerEventResponse) cri.Event {
	types := map[runtimeapi.ContainerEventType]cri.EventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT: cri.ContainerCreated,
		runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT: cri.ContainerStarted,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT: cri.ContainerStopped,
		runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT: cri.ContainerDeleted,
	}
	event := cri.Event{
		Type:   types[msg.GetContainerEventType()],
		ID:     msg.GetContainerId(),
		PodUID: msg.GetPodSandboxStatus().GetMetadata().GetUid(),
	}
	if ns := msg.GetCreatedAt(); ns > 0 {
		event.Time = time.Unix(0, ns)
	}
	return event
}
