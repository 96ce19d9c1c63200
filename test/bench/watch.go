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
	// at is the time by the runtime's clock.
	at time.Time
}

// watcher keeps all events of a runtime in the order in which they came.
type watcher struct {
	// close ends the watching.
	close func() error

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
	header := metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	stream, err := eventsapi.NewEventsClient(conn).Subscribe(header, &eventsapi.SubscribeRequest{
		Filters: []string{"topic~=^/tasks/(start|exit)$", "topic~=^/containers/(create|delete)$"},
	})
	if err != nil {
		stop()
		conn.Close()
		return nil, fmt.Errorf("watch containerd: %w", err)
	}
	done := make(chan struct{})
	w := &watcher{pauses: map[string]bool{}, more: make(chan struct{}), close: func() error {
		stop()
		<-done
		return conn.Close()
	}}
	go func() {
		defer close(done)
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

func (w *watcher) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err = err
	close(w.more)
}

// take adds an event of containerd.
func (w *watcher) take(payload any, at time.Time) {
	switch p := payload.(type) {
	case *apievents.ContainerCreate:
		w.made(p.GetID(), p.GetImage() == images.Pause)
	case *apievents.ContainerDelete:
		w.add(event{kind: deleted, id: p.GetID(), at: at})
	case *apievents.TaskStart:
		w.add(event{kind: started, id: p.GetContainerID(), pid: int(p.GetPid()), at: at})
	case *apievents.TaskExit:
		if p.GetID() == p.GetContainerID() { // else it is a command that ran in the container
			w.add(event{kind: exited, id: p.GetContainerID(), pid: int(p.GetPid()), at: at})
		}
	}
}

// made notes a new container, and whether it is the pause container of a pod.
func (w *watcher) made(id string, pause bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pauses[id] = pause
}

// add adds an event.
func (w *watcher) add(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
			return nil, fmt.Errorf("watch the runtime: %w", err)
		}
		select {
		case <-more:
		case <-ctx.Done():
			return found, fmt.Errorf("wait for %d events of the runtime, %d came: %w", n, len(found), ctx.Err())
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
