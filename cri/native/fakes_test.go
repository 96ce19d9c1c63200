package native

import (
	"context"
	"log/slog"
	"testing"
	"time"

	introspectionapi "github.com/containerd/containerd/api/services/introspection/v1"
	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/introspection"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/grpc"

	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/cri/internal/streams"
	"github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/internal/flock"
)

// fakeContainerd is a containerd as far as a test sets its services. A call of another one panics.
type fakeContainerd struct {
	snapshotter snapshots.Snapshotter
	services    []client.ServicesOpt
	// networks has the configuration of the network and its plugins; empty for none.
	networks string
}

// runtime returns a runtime on the fake, which has restored nothing.
func (f fakeContainerd) runtime(t *testing.T) *Runtime {
	t.Helper()
	if f.snapshotter == nil {
		f.snapshotter = noSnapshots{}
	}
	services := append([]client.ServicesOpt{
		client.WithIntrospectionService(onePlugin{}),
		client.WithSnapshotters(map[string]snapshots.Snapshotter{"overlayfs": f.snapshotter}),
	}, f.services...)
	containerd, err := client.New("", client.WithServices(services...))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := newStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if f.networks == "" {
		f.networks = t.TempDir()
	}
	network, err := cni.New(cni.Config{ConfDir: f.networks, BinDirs: []string{f.networks}, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	r := &Runtime{
		Service: images.New(images.Config{}, containerd), client: containerd, store: kept, groups: streams.New(),
		events: broadcaster{boxes: map[*streams.Mailbox]bool{}}, selinux: nodeSELinux(),
		cfg: Config{
			Namespace: "test", RootDir: t.TempDir(), StateDir: t.TempDir(), RequestTimeout: time.Minute, Network: network,
			Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
		},
	}
	r.closing, r.close = context.WithCancel(namespaces.WithNamespace(context.Background(), r.cfg.Namespace))
	t.Cleanup(func() {
		r.close()
		r.groups.Close()
		r.store.closeIO()
		r.Service.Close()
		_ = flock.Release(kept.lock)
	})
	return r
}

// onePlugin says that containerd has the snapshotter overlayfs.
type onePlugin struct{ introspection.Service }

func (onePlugin) Plugins(context.Context, ...string) (*introspectionapi.PluginsResponse, error) {
	return &introspectionapi.PluginsResponse{Plugins: []*introspectionapi.Plugin{{
		Type: "io.containerd.snapshotter.v1", ID: "overlayfs", Exports: map[string]string{"root": "/snapshots"},
	}}}, nil
}

// noSnapshots is a snapshotter without snapshots.
type noSnapshots struct{ snapshots.Snapshotter }

func (noSnapshots) Remove(_ context.Context, key string) error { return notFound("snapshot", key) }

// fakeTasks are containerd's tasks. Each call of theirs is a field.
type fakeTasks struct {
	tasksapi.TasksClient
	metrics func(*tasksapi.MetricsRequest) (*tasksapi.MetricsResponse, error)
	get     func(*tasksapi.GetRequest) (*tasksapi.GetResponse, error)
	create  func(*tasksapi.CreateTaskRequest) (*tasksapi.CreateTaskResponse, error)
}

func (f *fakeTasks) Create(
	_ context.Context, request *tasksapi.CreateTaskRequest, _ ...grpc.CallOption,
) (*tasksapi.CreateTaskResponse, error) {
	return f.create(request)
}

func (f *fakeTasks) Get(
	_ context.Context, request *tasksapi.GetRequest, _ ...grpc.CallOption,
) (*tasksapi.GetResponse, error) {
	return f.get(request)
}

// Wait waits for the end of a task, which comes with that of the caller.
func (f *fakeTasks) Wait(
	ctx context.Context, _ *tasksapi.WaitRequest, _ ...grpc.CallOption,
) (*tasksapi.WaitResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (f *fakeTasks) Metrics(
	_ context.Context, request *tasksapi.MetricsRequest, _ ...grpc.CallOption,
) (*tasksapi.MetricsResponse, error) {
	return f.metrics(request)
}

// noContainers is a containerd without containers.
type noContainers struct{ containers.Store }

func (noContainers) Get(_ context.Context, id string) (containers.Container, error) {
	return containers.Container{}, notFound("container", id)
}

// allContainers is a containerd that has every container.
type allContainers struct{ containers.Store }

func (allContainers) Get(_ context.Context, id string) (containers.Container, error) {
	return containers.Container{ID: id}, nil
}

// fakeTask is the process of a container that runs.
type fakeTask struct {
	client.Task
	id      string
	pid     uint32
	command client.Process // what Exec returns
}

func (f *fakeTask) Spec(context.Context) (*oci.Spec, error) {
	return &oci.Spec{Process: &specs.Process{}}, nil
}

func (f *fakeTask) Exec(context.Context, string, *specs.Process, cio.Creator) (client.Process, error) {
	return f.command, nil
}

func (f *fakeTask) ID() string { return f.id }

func (f *fakeTask) Pid() uint32 { return f.pid }

// runs adds a container that runs to the store.
func (r *Runtime) runs(t *testing.T, id string, task client.Task) *container {
	t.Helper()
	c := newContainer(containerRecord{ID: id, StartedAt: 1}, "uid")
	c.task, c.ended = task, make(chan struct{})
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	r.store.containers[id] = c
	return c
}
