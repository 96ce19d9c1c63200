package suite

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// subscribe opens an event stream that ends with the case.
func (b *bench) subscribe() <-chan cri.Event {
	b.Helper()
	ctx, cancel := context.WithCancel(b.ctx)
	b.Cleanup(cancel)
	events, err := b.Runtime.Events(ctx)
	b.ok(err, "subscribe to events")
	return events
}

// wantEvent waits for an event and drops those before it.
func (b *bench) wantEvent(events <-chan cri.Event, want cri.EventType, id, uid string) {
	b.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			b.Fatalf("no event of type %d for %s within %s", want, id, patience)
		case event, open := <-events:
			if !open {
				b.Fatal("the event stream ended")
			}
			if event.Exit != nil {
				continue // the lists do not show this event yet: another event follows when they do
			}
			if event.ID == id && event.Type == want {
				if event.PodUID != "" && event.PodUID != uid {
					b.Errorf("event %v has pod uid %q, want %q or none", event, event.PodUID, uid)
				}
				return
			}
		}
	}
}

func eventsArrive(b *bench) {
	events := b.subscribe()
	sandbox := b.sandbox()
	uid := sandbox.config.Metadata.Uid
	b.wantEvent(events, cri.ContainerStarted, sandbox.id, uid)
	id := b.create(sandbox, "main", b.Commands.Wait)
	b.wantEvent(events, cri.ContainerCreated, id, uid)
	b.ok(b.Runtime.StartContainer(b.ctx, id), "start container")
	b.wantEvent(events, cri.ContainerStarted, id, uid)
	b.ok(b.Runtime.StopContainer(b.ctx, id, 30*time.Second), "stop container")
	b.wantEvent(events, cri.ContainerStopped, id, uid)
	b.ok(b.Runtime.RemoveContainer(b.ctx, id), "remove container")
	b.wantEvent(events, cri.ContainerDeleted, id, uid)
	b.ok(b.Runtime.StopPodSandbox(b.ctx, sandbox.id), "stop sandbox")
	b.wantEvent(events, cri.ContainerStopped, sandbox.id, uid)
	b.ok(b.Runtime.RemovePodSandbox(b.ctx, sandbox.id), "remove sandbox")
	b.wantEvent(events, cri.ContainerDeleted, sandbox.id, uid)
}

func eventsEndWithContext(b *bench) {
	ctx, cancel := context.WithCancel(b.ctx)
	events, err := b.Runtime.Events(ctx)
	if err != nil {
		cancel()
		b.Fatalf("subscribe to events: %v", err)
	}
	b.sandbox() // makes some events that nobody reads
	cancel()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		select {
		case _, open := <-events:
			if !open {
				_, err = b.Runtime.Events(ctx)
				b.is(errdefs.IsCanceled, err, "subscribe with an ended context")
				return
			}
		case <-timer.C:
			b.Fatalf("the event stream did not end within %s", patience)
		}
	}
}

// eventsTellTheTruth checks that a container is exited for anyone who looks after its exit event.
func eventsTellTheTruth(b *bench) {
	events := b.subscribe()
	sandbox := b.sandbox()
	for _, name := range []string{"one", "two", "three"} {
		id := b.start(sandbox, name, b.Commands.Exit(2))
		b.wantEvent(events, cri.ContainerStopped, id, sandbox.config.Metadata.Uid)
		if status := b.status(id); status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED ||
			status.GetExitCode() != 2 {
			b.Errorf("status after the event of the exit is %v, want exited with 2", status)
		}
	}
}

func contextCancel(b *bench) {
	ended, cancel := context.WithCancel(b.ctx)
	cancel()
	_, err := b.Runtime.ListPodSandbox(ended, nil)
	b.is(errdefs.IsCanceled, err, "list with an ended context")
	_, err = b.Runtime.RunPodSandbox(ended, b.newSandboxConfig(), b.Handler)
	b.is(errdefs.IsCanceled, err, "run a sandbox with an ended context")

	sandbox := b.sandbox()
	id := b.stubborn(sandbox, "main")
	short, cancel := context.WithTimeout(b.ctx, 200*time.Millisecond)
	defer cancel()
	err = b.Runtime.StopContainer(short, id, 10*time.Minute)
	b.is(errdefs.IsDeadlineExceeded, err, "stop with a context shorter than the grace")
	if got := b.status(id).GetState(); got != runtimeapi.ContainerState_CONTAINER_RUNNING {
		b.Errorf("the container is %v after a stop that was given up, want running", got)
	}
	b.ok(b.Runtime.StopContainer(b.ctx, id, time.Second), "stop container again")
	if got := b.status(id).GetState(); got != runtimeapi.ContainerState_CONTAINER_EXITED {
		b.Errorf("the container is %v after its stop, want exited", got)
	}
}
