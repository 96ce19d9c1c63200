package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/berthd/berth/test/images"
)

// kind is what happened to a container.
type kind string

const (
	started kind = "started"
	exited  kind = "exited"
	deleted kind = "deleted"
)

// event is something that happened to a container. If sandbox is set, it happened to the pause
// container of a pod.
type event struct {
	kind    kind
	id      string
	sandbox bool
	pid     int
	// at is the time by containerd's clock.
	at time.Time
}

// watcher keeps all events of a containerd in the order in which they came.
type watcher struct {
	conn *grpc.ClientConn
	stop context.CancelFunc
	done chan struct{}

	mu     sync.Mutex
	pauses map[string]bool
	events []event
	more   chan struct{} // closed at the next event
	err    error
}

// newWatcher subscribes to the containerd at the endpoint.
func newWatcher(endpoint string) (*watcher, error) {
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w := &watcher{
		conn: conn, stop: stop, done: make(chan struct{}), pauses: map[string]bool{}, more: make(chan struct{}),
	}
	header := metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	stream, err := eventsapi.NewEventsClient(conn).Subscribe(header, &eventsapi.SubscribeRequest{
		Filters: []string{"topic~=^/tasks/(start|exit)$", "topic~=^/containers/(create|delete)$"},
	})
	if err != nil {
		stop()
		conn.Close()
		return nil, fmt.Errorf("watch containerd: %w", err)
	}
	go func() {
		defer close(w.done)
		for {
			envelope, err := stream.Recv()
			if err != nil {
				w.fail(err)
				return
			}
			if payload, err := typeurl.UnmarshalAny(envelope.GetEvent()); err == nil {
				w.take(payload, envelope.GetTimestamp().AsTime())
			}
		}
	}()
	return w, nil
}

func (w *watcher) close() error {
	w.stop()
	<-w.done
	return w.conn.Close()
}

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	close(w.more)
}

func (w *watcher) take(payload any, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := event{at: at}
	switch p := payload.(type) {
	case *apievents.ContainerCreate:
		w.pauses[p.GetID()] = p.GetImage() == images.Pause
		return
	case *apievents.ContainerDelete:
		e.kind, e.id = deleted, p.GetID()
	case *apievents.TaskStart:
		e.kind, e.id, e.pid = started, p.GetContainerID(), int(p.GetPid())
	case *apievents.TaskExit:
		if p.GetID() != p.GetContainerID() {
			return // a command that ran in the container
		}
		e.kind, e.id, e.pid = exited, p.GetContainerID(), int(p.GetPid())
	default:
		return
	}
	e.sandbox = w.pauses[e.id]
	w.events = append(w.events, e)
	close(w.more)
	w.more = make(chan struct{})
}

// mark returns the place of the next event.
func (w *watcher) mark() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.events)
}

// wait returns the first n events from the mark on that match. It fails if this takes longer than
// the limit.
func (w *watcher) wait(ctx context.Context, limit time.Duration, from, n int, match func(event) bool) ([]event, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var found []event
	for {
		w.mu.Lock()
		for ; from < len(w.events) && len(found) < n; from++ {
			if match(w.events[from]) {
				found = append(found, w.events[from])
			}
		}
		more, err := w.more, w.err
		w.mu.Unlock()
		switch {
		case len(found) == n:
			return found, nil
		case err != nil:
			return nil, fmt.Errorf("watch containerd: %w", err)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return found, fmt.Errorf("wait for %d events of containerd, %d came: %w", n, len(found), ctx.Err())
		}
	}
}

// The usual events to wait for.

func appStarted(e event) bool     { return e.kind == started && !e.sandbox }
func sandboxStarted(e event) bool { return e.kind == started && e.sandbox }
func sandboxDeleted(e event) bool { return e.kind == deleted && e.sandbox }

// sandboxStopped also counts a removal as a stop, because a shim that is shut down may lose the
// event of its last exit.
func sandboxStopped(e event) bool { return e.sandbox && (e.kind == exited || e.kind == deleted) }

// of limits a match to one container or sandbox.
func of(id string, match func(event) bool) func(event) bool {
	return func(e event) bool { return e.id == id && match(e) }
}
