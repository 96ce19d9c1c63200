package remote

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// feed is a kind of event stream.
type feed int

const (
	feedUnknown    feed = iota // not tried yet
	feedCRI                    // GetContainerEvents: containerd from 1.7, CRI-O where it is switched on
	feedContainerd             // containerd's own events service, or nothing where the runtime is another
)

// feedTrial is how long the first event stream to a runtime that nothing is known of may stay silent before it counts as
// supported: a runtime that lacks it says so at once, one that has it says nothing until something happens.
const feedTrial = 250 * time.Millisecond

// containerdName is how containerd's CRI plugin calls itself in Version.
const containerdName = "containerd"

// Events returns a stream of container and sandbox changes: the CRI's own where the runtime has it, else containerd's; errdefs.IsNotImplemented
// where there is neither, errdefs.IsUnavailable where the runtime is away. The subscription is made before Events returns. Events that nobody
// has taken yet are kept, one per object and type, so that a slow reader never holds up the runtime. Containerd before 2.0 hands each CRI
// event to only one of its subscribers, so two agents on one such containerd see half of them each, and live by relisting.
func (r *Runtime) Events(ctx context.Context) (<-chan cri.Event, error) {
	version, err := r.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe to events: %w", err)
	}
	key := version.GetRuntimeName() + " " + version.GetRuntimeVersion()
	kind := r.feedOf(key, version)
	if kind == feedUnknown || kind == feedCRI {
		events, err := r.subscribeCRI(ctx, key, kind == feedUnknown)
		if !errdefs.IsNotImplemented(err) {
			return events, err
		}
		r.cfg.Logger.Info("The runtime has no CRI events", "runtime", key, "err", err)
		kind = feedContainerd
	}
	if kind == feedContainerd && version.GetRuntimeName() == containerdName {
		return r.subscribeContainerd(ctx)
	}
	return nil, fmt.Errorf("subscribe to events of %s: %w", key, errdefs.ErrNotImplemented)
}

// feedOf returns what is known about the runtime's event streams, from an earlier try or from its version.
func (r *Runtime) feedOf(key string, version *runtimeapi.VersionResponse) feed {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind := r.feeds[key]; kind != feedUnknown {
		return kind
	}
	if version.GetRuntimeName() != containerdName {
		return feedUnknown
	}
	major, minor, ok := parseVersion(version.GetRuntimeVersion())
	switch {
	case !ok:
		return feedUnknown
	case major == 1 && minor < 7:
		return feedContainerd
	default:
		return feedCRI
	}
}

func (r *Runtime) setFeed(key string, kind feed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.feeds[key] = kind
}

// parseVersion reads "v1.6.20", "1.6.20~ds1" and the like.
func parseVersion(s string) (major, minor int, ok bool) {
	n, _ := fmt.Sscanf(strings.TrimPrefix(s, "v"), "%d.%d", &major, &minor)
	return major, minor, n == 2
}

// subscribeCRI opens a GetContainerEvents stream to the runtime that key names, and beside it, to containerd, one of the news of exits. With trial it waits for the runtime to refuse it, at most
// [feedTrial]. What it finds out is remembered.
func (r *Runtime) subscribeCRI(ctx context.Context, key string, trial bool) (<-chan cri.Event, error) {
	return r.subscribe(ctx, trial, func(ctx context.Context, box *mailbox) error {
		if strings.HasPrefix(key, containerdName+" ") {
			if err := r.spawn(func() { r.tellExits(ctx, box) }); err != nil {
				return err
			}
		}
		stream, err := r.runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
		for err == nil {
			var msg *runtimeapi.ContainerEventResponse
			if msg, err = stream.Recv(); err == nil {
				box.put(fromCRI(msg))
			}
		}
		err = classify("get_container_events", err)
		if errdefs.IsNotImplemented(err) {
			r.setFeed(key, feedContainerd)
		}
		return err
	}, func() { r.setFeed(key, feedCRI) })
}

// subscribe starts a goroutine that runs read, which opens a stream and puts its events into the box until it breaks, and
// returns the channel on which the events come out again. It returns once the subscription stands, after having called stands, or with the error
// that read met at once.
func (r *Runtime) subscribe(ctx context.Context, trial bool, read func(context.Context, *mailbox) error, stands func()) (<-chan cri.Event, error) {
	ctx, stop := r.streamContext(ctx)
	start := time.Now()
	box := newMailbox()
	broken := make(chan error, 1)
	err := r.spawn(func() {
		defer stop()
		err := read(ctx, box)
		if ctx.Err() == nil {
			r.cfg.Logger.Info("The runtime's event stream ended", "err", err)
		}
		broken <- err
		box.close()
	})
	var out <-chan cri.Event
	if err == nil {
		if err = r.settled(ctx, trial, broken); err == nil {
			stands()
			out, err = r.deliver(ctx, box)
		}
	}
	r.cfg.Observe("get_container_events", time.Since(start), err)
	if err != nil {
		stop()
		return nil, fmt.Errorf("subscribe to events: %w", err)
	}
	return out, nil
}

// settled waits until a new stream is known to stand: the runtime answered a call that was sent after it, and with trial
// [feedTrial] went by, and the stream was not refused meanwhile.
func (r *Runtime) settled(ctx context.Context, trial bool, broken <-chan error) error {
	if _, err := r.Version(ctx); err != nil {
		return err
	}
	wait := time.Duration(0)
	if trial {
		wait = feedTrial
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-broken:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	select {
	case err := <-broken:
		return err
	default:
		return nil
	}
}

// spawn runs f in a goroutine that Close joins; cancelled where Close came first.
func (r *Runtime) spawn(f func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return fmt.Errorf("the runtime's connection is closed: %w", context.Canceled)
	}
	r.streams.Go(f)
	return nil
}

// streamContext returns a context that ends with the caller's and with [Runtime.Close].
func (r *Runtime) streamContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	release := context.AfterFunc(r.closing, cancel)
	return ctx, func() {
		release()
		cancel()
	}
}

// deliver hands the box's events to the returned channel, until the box is closed or ctx ends, and then closes it.
func (r *Runtime) deliver(ctx context.Context, box *mailbox) (<-chan cri.Event, error) {
	out := make(chan cri.Event)
	return out, r.spawn(func() {
		defer close(out)
		for {
			event, ok := box.take(ctx)
			if !ok {
				return
			}
			select {
			case out <- event:
			case <-box.closed:
				return
			case <-ctx.Done():
				return
			}
		}
	})
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
