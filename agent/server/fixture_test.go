package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/images/garbage"
	"github.com/berthd/berth/agent/node/admit"
	podengine "github.com/berthd/berth/agent/pod"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) {
	// The heartbeat of the WebSocket client, which only tests use, may outlast a connection that
	// was cut.
	os.Exit(leaks.Run(m, "k8s.io/client-go/tools/remotecommand.(*heartbeat).start"))
}

// fixture is an agent and a runtime that say what a test wants them to.
type fixture struct {
	mu        sync.Mutex
	pods      []*v1.Pod
	watches   map[notify.Signal]bool
	timelines map[types.UID]timeline.Timeline
	kept      []v1.Event
	events    chan v1.Event
	results   []source.Result
	pulls     []api.Pull
	sick      error
	unserved  error
	node      api.NodeStatus

	// block, if not nil, holds every runtime call until it is closed.
	block chan struct{}
	// entered receives for every call that is held.
	entered   chan struct{}
	statuses  map[string]*runtimeapi.ContainerStatus
	sandboxes []*runtimeapi.PodSandbox
	execURL   string
	// streaming, if not nil, is the runtime's streaming server.
	streaming streaming.Server
	execs     []*runtimeapi.ExecRequest
	attached  []*runtimeapi.AttachRequest
	exitCode  int32
	// down is the error of a runtime that does not answer.
	down error
	// pruneErr is why some images are not removed.
	pruneErr error
	// operator stops pods, if it is set.
	operator Operator
	// history is what happened before, if it is set.
	history History
	// noCheckpoints is why the runtime makes no checkpoints.
	noCheckpoints error
	// waits is how long requests wait for a place, if it is not as long as usual.
	waits time.Duration
}

func (f *fixture) Node(context.Context) api.NodeStatus { return f.node }

func (f *fixture) Notes(context.Context) api.Notes {
	return api.Notes{SilentSince: f.node.Runtime.SilentSince, Error: f.node.Runtime.Error, Drain: f.node.Drain}
}

func (f *fixture) Pods() []*v1.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*v1.Pod, 0, len(f.pods))
	for _, p := range f.pods {
		out = append(out, p.DeepCopy())
	}
	return out
}

// AddEphemeral refuses what the names ask for.
func (f *fixture) AddEphemeral(_ context.Context, uid types.UID, c *v1.EphemeralContainer) error {
	switch c.Name {
	case "":
		return fmt.Errorf("%w: spec.ephemeralContainers[0].name: Required value", podengine.ErrInvalid)
	case "late":
		return fmt.Errorf("%w: its phase is Failed", podengine.ErrOver)
	case "unlucky":
		return errors.New("disk full")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pods {
		if p.UID == uid {
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, *c)
		}
	}
	return nil
}

// Try refuses the pods whose names begin with "big".
func (f *fixture) Try(wanted []*v1.Pod, leaves func(*v1.Pod) bool) map[types.UID]*admit.Rejection {
	out := map[types.UID]*admit.Rejection{}
	for _, pod := range wanted {
		if strings.HasPrefix(pod.Name, "big") && !leaves(pod) {
			out[pod.UID] = &admit.Rejection{Reason: "OutOfcpu", Message: "too big", Detail: "by far"}
		}
	}
	return out
}

func (f *fixture) WatchPods() (<-chan struct{}, func()) {
	changed := notify.New()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watches == nil {
		f.watches = map[notify.Signal]bool{}
	}
	f.watches[changed] = true
	return changed, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watches, changed)
	}
}

// setPods changes the pods and notifies the watches.
func (f *fixture) setPods(pods ...*v1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods = pods
	for changed := range f.watches {
		changed.Notify()
	}
}

func (f *fixture) Timeline(uid types.UID) (timeline.Timeline, bool) {
	s, ok := f.timelines[uid]
	return s, ok
}

func (f *fixture) Events() []v1.Event { return f.kept }

func (f *fixture) WatchEvents() (kept []v1.Event, following <-chan v1.Event, stop func()) {
	return f.kept, f.events, func() {}
}

func (f *fixture) Validated() []source.Result       { return f.results }
func (f *fixture) Pulls(context.Context) []api.Pull { return f.pulls }
func (f *fixture) Healthy(time.Duration) error      { return f.sick }
func (f *fixture) DevicePluginsServed() error       { return f.unserved }

// wait holds a runtime call.
func (f *fixture) wait(ctx context.Context) error {
	if f.block == nil {
		return ctx.Err()
	}
	f.entered <- struct{}{}
	select {
	case <-f.block:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *fixture) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1.0"}, f.wait(ctx)
}

func (f *fixture) ListPodSandbox(
	ctx context.Context, _ *runtimeapi.PodSandboxFilter,
) ([]*runtimeapi.PodSandbox, error) {
	return f.sandboxes, f.wait(ctx)
}

func (f *fixture) ListContainers(ctx context.Context, _ *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	pod := f.Pods()[0]
	return []*runtimeapi.Container{
		{
			Id:          "id-main",
			Image:       &runtimeapi.ImageSpec{Image: "sha256:1"},
			Labels:      cri.ContainerLabels(pod, "main"),
			Annotations: cri.ContainerAnnotations(pod, &pod.Spec.Containers[0], 0),
		},
		{Id: "unmanaged", Labels: map[string]string{"a": "b"}},
	}, f.wait(ctx)
}

func (f *fixture) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if err := f.wait(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return nil, f.down
	}
	s, ok := f.statuses[id]
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	return &runtimeapi.ContainerStatus{State: s.State, LogPath: s.LogPath}, nil
}

func (f *fixture) Images(ctx context.Context) ([]api.Image, error) {
	return []api.Image{
		{ID: "sha256:2", Tags: []string{"b:1"}, Size: 20}, {ID: "sha256:1", Tags: []string{"a:1"}, Size: 10},
	}, f.wait(ctx)
}

func (f *fixture) Archives() []api.Archive { return f.node.Archives }

func (f *fixture) PruneImages(_ context.Context, dryRun bool) ([]api.Image, error) {
	if dryRun {
		return nil, nil
	}
	return []api.Image{{ID: "sha256:2", Tags: []string{"b:1"}, Size: 20}}, f.pruneErr
}

func (f *fixture) ExecSync(
	ctx context.Context, _ string, cmd []string, _ time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(strings.Join(cmd, "+")), ExitCode: f.exitCode}, f.wait(ctx)
}

func (f *fixture) CheckpointContainer(ctx context.Context, id, location string, timeout time.Duration) error {
	if err := f.wait(ctx); err != nil {
		return err
	}
	if f.noCheckpoints != nil {
		return f.noCheckpoints
	}
	return os.WriteFile(location, []byte(id+" "+timeout.String()), 0o600)
}

func (f *fixture) Exec(ctx context.Context, req *runtimeapi.ExecRequest) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.execs = append(f.execs, req)
	if f.streaming != nil {
		resp, err := f.streaming.GetExec(req)
		return resp.GetUrl(), err
	}
	return f.execURL, ctx.Err()
}

func (f *fixture) Attach(ctx context.Context, req *runtimeapi.AttachRequest) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attached = append(f.attached, req)
	if f.streaming != nil {
		resp, err := f.streaming.GetAttach(req)
		return resp.GetUrl(), err
	}
	return f.execURL, ctx.Err()
}

func (f *fixture) PortForward(ctx context.Context, _ *runtimeapi.PortForwardRequest) (string, error) {
	return f.execURL, ctx.Err()
}

// webPod is a pod with a running container main, one that waits, and one that was restarted.
func webPod() *v1.Pod {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-node", UID: "u1"},
		Spec: v1.PodSpec{
			NodeName:   "node",
			Containers: []v1.Container{{Name: "main"}, {Name: "waits"}, {Name: "again"}, {Name: "shell", TTY: true}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning,
			ContainerStatuses: []v1.ContainerStatus{
				{Name: "main", ContainerID: "fake://id-main", State: running, Ready: true},
				{
					Name:  "waits",
					State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
				},
				{
					Name: "again", ContainerID: "fake://id-again", State: running, RestartCount: 1,
					LastTerminationState: v1.ContainerState{
						Terminated: &v1.ContainerStateTerminated{ContainerID: "fake://id-before"},
					},
				},
				{Name: "shell", ContainerID: "fake://id-shell", State: running, Ready: true},
			},
		},
	}
}

// rig is a server that runs.
type rig struct {
	*fixture
	server *Server
	socket string
	logs   string
	http   *http.Client
	stop   func() error
}

// start runs a server over the fixture until the test's end.
func start(t *testing.T, f *fixture) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "srv") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{fixture: f, socket: filepath.Join(dir, "s"), logs: filepath.Join(dir, "logs")}
	if f.pods == nil {
		f.pods = []*v1.Pod{webPod()}
	}
	r.server, err = New(Config{
		Socket:     r.socket,
		PodLogsDir: r.logs,
		Node:       "node",
		Version:    "v1",
		Configz:    map[string]any{"kubeletconfig": map[string]int{"maxPods": 110}},
	}, f, Deps{
		Runtime: f,
		Stats:   f,
		Metrics: metrics.New("node", "v1"),
		Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),

		Operator: f.operator,
		History:  f.history,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.server.waitTimeout = cmp.Or(f.waits, waitTimeout)
	r.run(t)
	return r
}

func (r *rig) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.server.Run(ctx) }()
	r.stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", r.socket)
	}}
	r.http = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := r.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for {
		conn, err := net.Dial("unix", r.socket)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- nil
			t.Fatalf("Run ended: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// ask makes a request and returns the answer.
func (r *rig) ask(t *testing.T, method, path string, body io.Reader) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://berth"+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, string(data)
}

// lineOf is a pod's timeline of these entries; each ends a second after the one before.
func lineOf(phase string, entries ...timeline.Entry) timeline.Timeline {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range entries {
		entries[i].Begin = at
		at = at.Add(time.Second)
		entries[i].End, entries[i].Last, entries[i].Count = at, at, 1
	}
	return timeline.Timeline{Phase: phase, Steps: []string{"admit", "sandbox", "images"}, Entries: entries}
}

func (*fixture) Summary(_ context.Context, onlyCPUAndMemory bool) *statsapi.Summary {
	s := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "node"}, Pods: []statsapi.PodStats{}}
	if !onlyCPUAndMemory {
		s.Node.Rlimit = &statsapi.RlimitStats{}
	}
	return s
}

func (*fixture) Resource() prometheus.Gatherer { return gauge("node_memory_working_set_bytes") }
func (*fixture) Cadvisor() prometheus.Gatherer { return gauge("machine_cpu_cores") }

func gauge(name string) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: name}))
	return registry
}

// RemoveImage removes old:1, and no other image.
func (*fixture) RemoveImage(_ context.Context, name string) (api.Image, error) {
	switch name {
	case "old:1":
		return api.Image{ID: "sha256:1", Tags: []string{"old:1"}}, nil
	case "used:1":
		return api.Image{}, fmt.Errorf("%w: used:1: pod default/web names it", garbage.ErrNeeded)
	case "stuck:1":
		return api.Image{}, errors.New("remove image stuck:1: busy")
	}
	return api.Image{}, fmt.Errorf("%w: %s", garbage.ErrNoImage, name)
}

// PullImage pulls good:1, and no other image.
func (*fixture) PullImage(_ context.Context, image string) (id string, err error) {
	if image != "good:1" {
		return "", errors.New("pulling image " + image + ": ErrImagePull: not found")
	}
	return "sha256:good", nil
}
