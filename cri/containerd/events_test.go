package containerd

import (
	"context"
	"slices"
	"testing"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	eventsapi "github.com/containerd/containerd/api/services/events/v1"
	apitypes "github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

func TestFromContainerd(t *testing.T) {
	for name, c := range map[string]struct {
		payload    any
		want       cri.Event
		exited, ok bool
	}{
		"create": {
			&apievents.ContainerCreate{ID: "c"}, cri.Event{Type: cri.ContainerCreated, ID: "c"}, false, true,
		},
		"delete": {
			&apievents.ContainerDelete{ID: "c"}, cri.Event{Type: cri.ContainerDeleted, ID: "c"}, false, true,
		},
		"start": {
			&apievents.TaskStart{ContainerID: "c"}, cri.Event{Type: cri.ContainerStarted, ID: "c"}, false, true,
		},
		"oom": {
			&apievents.TaskOOM{ContainerID: "c"}, cri.Event{Type: cri.ContainerStopped, ID: "c"}, false, true,
		},
		"exit": {
			&apievents.TaskExit{ContainerID: "c", ID: "c"}, cri.Event{Type: cri.ContainerStopped, ID: "c"}, true, true,
		},
		"exit of an exec": {
			&apievents.TaskExit{ContainerID: "c", ID: "e"}, cri.Event{Type: cri.ContainerStopped, ID: "c"}, true, false,
		},
		"task deleted": {
			&apievents.TaskDelete{ContainerID: "c"}, cri.Event{Type: cri.ContainerStopped, ID: "c"}, true, true,
		},
		"exec deleted": {
			&apievents.TaskDelete{ContainerID: "c", ID: "e"},
			cri.Event{Type: cri.ContainerStopped, ID: "c"},
			true,
			false,
		},
		"other": {&apievents.ImageCreate{}, cri.Event{}, false, false},
	} {
		event, exited, ok := fromContainerd(c.payload)
		if event != c.want || exited != c.exited || ok != c.ok {
			t.Errorf("%s: got %v, exited %v, ok %v", name, event, exited, ok)
		}
	}
}

// eventServer is a runtime that lets a container exit, and shows the exit at once.
type eventServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	eventsapi.UnimplementedEventsServer
	name, version string
	// cri has what GetContainerEvents sends; nil refuses.
	cri []*runtimeapi.ContainerEventResponse
	// own has what containerd's event service sends.
	own []any
}

func (s *eventServer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: s.name, RuntimeVersion: s.version}, nil
}

func (s *eventServer) ContainerStatus(
	context.Context, *runtimeapi.ContainerStatusRequest,
) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED},
	}, nil
}

func (s *eventServer) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	if s.cri == nil {
		return status.Error(codes.Unimplemented, "no events")
	}
	for _, e := range s.cri {
		if err := stream.Send(e); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

func (s *eventServer) Subscribe(req *eventsapi.SubscribeRequest, stream eventsapi.Events_SubscribeServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if namespaces := md.Get("containerd-namespace"); !slices.Equal(namespaces, []string{"k8s.io"}) {
		return status.Errorf(codes.InvalidArgument, "namespaces %q", namespaces)
	}
	for _, payload := range s.own {
		data, err := typeurl.MarshalAnyToProto(payload)
		if err != nil {
			return err
		}
		if err := stream.Send(&apitypes.Envelope{Event: data, Topic: req.Filters[0]}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

func exit(id string) *apievents.TaskExit {
	return &apievents.TaskExit{ContainerID: id, ID: id, ExitStatus: 3, ExitedAt: timestamppb.New(time.Unix(7, 0))}
}

// With any event stream of a runtime, the reader learns of an exit, and on containerd early and
// with its exit code.
func TestEvents(t *testing.T) {
	started := &runtimeapi.ContainerEventResponse{
		ContainerId: "b", ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
	}
	early := cri.Event{
		Type: cri.ContainerStopped,
		ID:   "a",
		Time: time.Unix(7, 0).UTC(),
		Exit: &cri.Exit{Code: 3, At: time.Unix(7, 0).UTC()},
	}
	for name, c := range map[string]struct {
		server *eventServer
		want   []cri.Event
	}{
		"the CRI's, and exits beside": {
			&eventServer{
				name:    "containerd",
				version: "v2.1.0",
				cri:     []*runtimeapi.ContainerEventResponse{started},
				own:     []any{exit("a")},
			},
			[]cri.Event{early, {Type: cri.ContainerStarted, ID: "b"}},
		},
		"containerd's own": {
			&eventServer{
				name:    "containerd",
				version: "1.6.20",
				own:     []any{&apievents.TaskStart{ContainerID: "b"}, exit("a")},
			},
			[]cri.Event{{Type: cri.ContainerStarted, ID: "b"}, {Type: cri.ContainerStopped, ID: "a"}},
		},
		"containerd's own, as the CRI's are refused": {
			&eventServer{
				name:    "containerd",
				version: "unknown",
				own:     []any{&apievents.TaskStart{ContainerID: "b"}, exit("a")},
			},
			[]cri.Event{{Type: cri.ContainerStarted, ID: "b"}, {Type: cri.ContainerStopped, ID: "a"}},
		},
		"another runtime's": {
			&eventServer{name: "other", cri: []*runtimeapi.ContainerEventResponse{started}, own: []any{exit("a")}},
			[]cri.Event{{Type: cri.ContainerStarted, ID: "b"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := socket(t)
			stop := serve(t, path, c.server, c.server)
			events, err := dial(t, path, Config{}).Events(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for len(c.want) > 0 { // in any order: two streams have no common order
				event, open := <-events
				if !open {
					t.Fatalf("the stream ended before %+v", c.want)
				}
				c.want = slices.DeleteFunc(c.want, func(want cri.Event) bool { return same(want, event) })
			}
			stop()
			for range events { // events that came twice
			}
		})
	}
}

func same(a, b cri.Event) bool {
	if (a.Exit == nil) != (b.Exit == nil) || a.Exit != nil && *a.Exit != *b.Exit {
		return false
	}
	a.Exit, b.Exit = nil, nil
	return a == b
}

func TestEventsOfRuntimesWithoutAny(t *testing.T) {
	for _, s := range []*server{{name: "other"}, {name: "containerd", version: "1.6.20"}, {name: "containerd"}} {
		path := socket(t)
		serve(t, path, s)
		r := dial(t, path, Config{})
		// containerd's own may come after the subscription counted as made
		eventually(t, "the refusal", func() bool {
			events, err := r.Events(t.Context())
			if err == nil {
				for range events {
					t.Error("an event of a runtime that has none")
				}
			}
			return errdefs.IsNotImplemented(err)
		})
	}
}

func TestCloseEndsEvents(t *testing.T) {
	for _, version := range []string{"1.6.20", "v2.1.0"} {
		path := socket(t)
		s := &eventServer{name: "containerd", version: version, cri: []*runtimeapi.ContainerEventResponse{}}
		serve(t, path, s, s)
		r := dial(t, path, Config{})
		events, err := r.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if _, open := <-events; open {
			t.Error("the stream is open after Close")
		}
		if _, err := r.Events(t.Context()); err == nil {
			t.Error("events of a closed runtime")
		}
	}
}
