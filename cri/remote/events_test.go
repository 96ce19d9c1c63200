package remote

import (
	"fmt"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

type eventStream = grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]

func TestEventsOfUnknownRuntimes(t *testing.T) {
	for name, c := range map[string]struct {
		server *server
		want   func(error) bool
	}{
		"another runtime without":       {&server{name: "other"}, errdefs.IsNotImplemented},
		"an old containerd":             {&server{name: "containerd", version: "1.6.20"}, errdefs.IsNotImplemented},
		"a new containerd that refuses": {&server{name: "containerd", version: "v2.1.0"}, errdefs.IsNotImplemented},
		"another runtime that fails": {&server{name: "other", events: func(eventStream) error {
			return status.Error(codes.Internal, "boom")
		}}, errdefs.IsInternal},
	} {
		t.Run(name, func(t *testing.T) {
			path := socket(t)
			serve(t, path, c.server)
			r := dial(t, Config{Endpoint: path})
			for range 2 {
				eventually(t, "the error",
					// a new containerd's refusal may come after the subscription counted as made
					func() bool {
						events, err := r.Events(t.Context())
						if err == nil {
							for range events {
								t.Error("an event of a runtime that has none")
							}
						}
						return c.want(err)
					})
			}
		})
	}
}

func TestEventsEndWhenTheRuntimeGoes(t *testing.T) {
	path := socket(t)
	stop := serve(t, path, &server{name: "other", events: func(s eventStream) error {
		err := s.Send(&runtimeapi.ContainerEventResponse{
			ContainerId: "c", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, CreatedAt: 5,
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}},
		})
		<-s.Context().Done()
		return err
	}})
	r := dial(t, Config{Endpoint: path})
	events, err := r.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := cri.Event{Type: cri.ContainerStopped, ID: "c", PodUID: "u", Time: time.Unix(0, 5)}
	if got := <-events; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	stop()
	if event, open := <-events; open {
		t.Errorf("got %+v after the runtime went, want the channel closed", event)
	}
}

func TestSlowReaderDoesNotHoldUpTheRuntime(t *testing.T) {
	path := socket(t)
	const n = 200_000 // far more than gRPC and channels buffer
	sent := make(chan error, 1)
	serve(t, path, &server{name: "other", events: func(s eventStream) error {
		for i := range n {
			if err := s.Send(&runtimeapi.ContainerEventResponse{ContainerId: fmt.Sprint("c", i%10)}); err != nil {
				sent <- err
				return err
			}
		}
		sent <- nil
		<-s.Context().Done()
		return nil
	}})
	r := dial(t, Config{Endpoint: path})
	events, err := r.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for len(seen) < 10 {
		seen[(<-events).ID] = true
	}
}

func TestCloseEndsEvents(t *testing.T) {
	path := socket(t)
	serve(t, path, &server{name: "other", events: func(s eventStream) error { <-s.Context().Done(); return nil }})
	r := dial(t, Config{Endpoint: path})
	events, err := r.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, open := <-events; open {
		t.Error("the stream is open after Close")
	}
	if _, err := r.Events(t.Context()); err == nil {
		t.Error("events of a closed connection")
	}
}

func TestParseVersion(t *testing.T) {
	for in, want := range map[string][2]int{
		"v1.6.20":       {1, 6},
		"1.6.20~ds1":    {1, 6},
		"v1.7.0-rc.1":   {1, 7},
		"2.4.2+unknown": {2, 4},
		"v2.1":          {2, 1},
		"":              {-1, 0},
		"v2":            {-1, 0},
		"v1.":           {-1, 0},
		"v1.x":          {-1, 0},
	} {
		major, minor, ok := parseVersion(in)
		if ok != (want[0] >= 0) || ok && [2]int{major, minor} != want {
			t.Errorf("parseVersion(%q) = %d, %d, %v", in, major, minor, ok)
		}
	}
}
