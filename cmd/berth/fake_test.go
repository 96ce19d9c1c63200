package main

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	utilexec "k8s.io/utils/exec"

	"github.com/berthd/berth/agent/node/admit"
	podengine "github.com/berthd/berth/agent/pod"
	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// fakeAgent is an agent with a few pods, behind the real server. Its streams are those of a real
// streaming server.
type fakeAgent struct {
	dir       string
	began     time.Time
	streaming streaming.Server

	mu sync.Mutex
	// ephemeral are the containers that were added to the pod web.
	ephemeral []v1.EphemeralContainer
	// stopped has the pods that were stopped, by UID.
	stopped map[types.UID]bool
	// restarts counts the restarts of containers of the pod web, by name. It is ready after one.
	restarts map[string]int32
	// brief is the state of the container with the image brief. It ends once its log was read.
	brief briefly
}

// briefly is the life of a container that ends before anybody can connect to it.
type briefly struct{ ended, last bool }

// serve runs the fake agent on dir/s until stop is called.
func serve(dir string) (stop func() error, err error) {
	f := &fakeAgent{dir: dir, began: time.Now()}
	logs := filepath.Join(dir, "logs", "default_web-node_u-web")
	for name, text := range map[string]string{
		"main/0.log":  "2026-01-01T00:00:01.000000000Z stdout F before\n",
		"main/1.log":  "2026-01-01T00:00:01.000000000Z stdout F one\n2026-01-01T00:00:02.000000000Z stderr F two\n",
		"side/0.log":  "2026-01-01T00:00:01.000000000Z stdout F side one\n",
		"brief/0.log": "2026-01-01T00:00:01.000000000Z stdout F first\n",
		"init/0.log":  "2026-01-01T00:00:01.000000000Z stdout F prepared\n",
	} {
		path := filepath.Join(logs, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	streams := httptest.NewUnstartedServer(nil)
	f.streaming, err = streaming.NewServer(streaming.Config{
		BaseURL:                         &url.URL{Scheme: "http", Host: streams.Listener.Addr().String(), Path: "/"},
		StreamIdleTimeout:               time.Minute,
		StreamCreationTimeout:           time.Minute,
		SupportedRemoteCommandProtocols: remotecommand.SupportedStreamingProtocols,
		SupportedPortForwardProtocols:   []string{"portforward.k8s.io"},
	}, fakeStreams{})
	if err != nil {
		return nil, err
	}
	streams.Config.Handler = f.streaming
	streams.Start()
	s, err := server.New(server.Config{
		Socket: filepath.Join(dir, "s"), PodLogsDir: filepath.Join(dir, "logs"), Manifests: f.manifests(),
		Node: "node", Version: "v9", RootDir: dir,
		Configz: map[string]any{"kubeletconfig": map[string]string{"staticPodPath": f.manifests()}},
	}, f, server.Deps{
		Runtime: f, Stats: f, Operator: f, History: fakeHistory{}, Metrics: metrics.New("node", "v9"),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for {
		if _, err := os.Stat(filepath.Join(dir, "s")); err == nil {
			break
		}
		select {
		case err := <-ended:
			cancel()
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
	return func() error {
		cancel()
		streams.CloseClientConnections()
		streams.Close()
		return <-ended
	}, nil
}

func at(d time.Duration) metav1.Time { return metav1.NewTime(time.Now().Add(-d)) }

func (f *fakeAgent) pod(namespace, name string, status v1.PodStatus, containers ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         namespace,
			Name:              name,
			UID:               types.UID("u-" + strings.TrimSuffix(name, "-node")),
			CreationTimestamp: metav1.NewTime(f.began.Add(-20 * time.Hour)),
			Annotations:       map[string]string{pods.AnnotationSource: pods.SourceFile},
		},
		Spec: v1.PodSpec{NodeName: "node"}, Status: status,
	}
	for _, c := range containers {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c, Image: "img:1"})
	}
	return p
}

// Pods returns a pod that runs, one that cannot start, and two with the same name.
func (f *fakeAgent) Pods() []*v1.Pod {
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at(time.Minute)}}
	web := f.pod("default", "web-node", v1.PodStatus{
		Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, QOSClass: v1.PodQOSBestEffort,
		InitContainerStatuses: []v1.ContainerStatus{{
			Name: "init", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "f://init0"}},
		}},
		ContainerStatuses: []v1.ContainerStatus{
			{
				Name: "main", Ready: true, State: running, ContainerID: "f://main1", RestartCount: 1,
				LastTerminationState: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
					ContainerID: "f://main0",
					ExitCode:    3,
					FinishedAt:  metav1.NewTime(f.began.Add(-10 * time.Hour)),
				}},
			},
			{Name: "side", Ready: true, State: running, ContainerID: "f://side0"},
		},
	}, "main", "side")
	web.Labels = map[string]string{"app": "web", "tier": "front"}
	web.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/a"}, {ConditionType: "example.com/b"}}
	web.Status.Conditions = []v1.PodCondition{
		{Type: "example.com/b", Status: v1.ConditionTrue}, {Type: "example.com/a", Status: v1.ConditionFalse},
	}
	web.Spec.InitContainers = []v1.Container{{Name: "init", Image: "img:1"}}
	web.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 8080}}
	other := f.pod("other", "twin-node", v1.PodStatus{Phase: v1.PodPending}, "c")
	other.UID = "u-other"
	broken := f.pod("default", "broken-node", v1.PodStatus{
		Phase: v1.PodPending,
		ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		}},
	}, "c")
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.ephemeral {
		web.Spec.EphemeralContainers = append(web.Spec.EphemeralContainers, c)
		status := v1.ContainerStatus{Name: c.Name, State: running, ContainerID: "f://" + c.Name + "0"}
		if c.Image == "quick" {
			status.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "f://side0"}}
			status.ContainerID = "f://side0"
		}
		if c.Image == "brief" {
			status = f.briefStatus(status)
		}
		web.Status.EphemeralContainerStatuses = append(web.Status.EphemeralContainerStatuses, status)
	}
	f.restarted(web)
	for _, pod := range []*v1.Pod{web, broken} {
		switch {
		case f.silent():
		case f.stopped[pod.UID] && f.stopped[web.UID]: // broken stops only beside web
			f.hold(pod, pods.ReasonStopped, "Pod was stopped by an operator.")
		case f.has("drained"):
			f.hold(pod, pods.ReasonDrained, "Pod was stopped to drain the node.")
		}
	}
	return []*v1.Pod{
		broken, f.pod("default", "twin-node", v1.PodStatus{Phase: v1.PodPending}, "c"), web, other,
	}
}

// silent reports whether the runtime does not answer.
func (f *fakeAgent) silent() bool { return f.has("silent") }

// has reports whether a file is in the agent's directory. The node is drained while there is the
// file drained, and the runtime does not answer while there is the file silent.
func (f *fakeAgent) has(file string) bool {
	_, err := os.Stat(filepath.Join(f.dir, file))
	return err == nil
}

// briefStatus is the status of a container that ends before anybody can connect to it, and prints
// something more. The caller holds f.mu.
func (f *fakeAgent) briefStatus(s v1.ContainerStatus) v1.ContainerStatus {
	s.ContainerID = "f://brief0"
	if !f.brief.ended {
		return s
	}
	if !f.brief.last {
		f.brief.last = true
		path := filepath.Join(f.dir, "logs", "default_web-node_u-web", "brief", "0.log")
		text := "2026-01-01T00:00:01.000000000Z stdout F first\n2026-01-01T00:00:02.000000000Z stdout F last\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
		ContainerID: "f://brief0",
		ExitCode:    3,
		Reason:      "Error",
	}}
	return s
}

// AddEphemeral adds containers to the pod web, each only once.
func (f *fakeAgent) AddEphemeral(_ context.Context, uid types.UID, c *v1.EphemeralContainer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case uid != "u-web":
		return fmt.Errorf("%w: its phase is Failed", podengine.ErrOver)
	case slices.ContainsFunc(f.ephemeral, func(o v1.EphemeralContainer) bool { return o.Name == c.Name }):
		return fmt.Errorf("%w: spec.ephemeralContainers[1].name: Duplicate value: %q", podengine.ErrInvalid, c.Name)
	}
	f.ephemeral = append(f.ephemeral, *c)
	return nil
}

// Try refuses pods with the label refuse, and says which pods leave.
func (f *fakeAgent) Try(wanted []*v1.Pod, leaves func(*v1.Pod) bool) map[types.UID]*admit.Rejection {
	out := map[types.UID]*admit.Rejection{}
	for _, pod := range wanted {
		if reason := pod.Labels["refuse"]; reason != "" {
			left := slices.IndexFunc(f.Pods(), leaves)
			out[pod.UID] = &admit.Rejection{Reason: reason, Message: fmt.Sprintf("not on this node (%t)", left >= 0)}
		}
	}
	return out
}

func (f *fakeAgent) WatchPods() (<-chan struct{}, func()) { return make(chan struct{}), func() {} }

func (f *fakeAgent) Timeline(uid types.UID) (timeline.Timeline, bool) {
	s := timeline.Timeline{Phase: "Running", Steps: []string{"admit", "images"}}
	if uid == "u-broken" {
		s.RetryAt = f.began.Add(time.Hour)
		s.Entries = []timeline.Entry{
			{Step: "admit", Begin: f.began, End: f.began, Last: f.began, Count: 1, Outcome: timeline.Done},
			{
				Step:    "images",
				Begin:   f.began,
				End:     f.began.Add(time.Second),
				Last:    f.began.Add(time.Second),
				Count:   3,
				Outcome: timeline.Failed,
				Message: "no \x1b[31msuch image",
			},
		}
	}
	return s, true
}

func (f *fakeAgent) Events() []v1.Event {
	e := v1.Event{
		Type:           v1.EventTypeWarning,
		Reason:         "Failed",
		Message:        "Failed to pull",
		Count:          3,
		FirstTimestamp: at(2 * time.Minute),
		LastTimestamp:  at(time.Minute),
		InvolvedObject: v1.ObjectReference{
			Kind:      "Pod",
			Namespace: "default",
			Name:      "broken-node",
			UID:       "u-broken",
			FieldPath: "spec.containers{c}",
		},
		Source: v1.EventSource{Component: "kubelet"},
	}
	e.Namespace, e.Name = "default", "broken-node.1"
	other := e
	other.Type, other.Reason, other.Message = v1.EventTypeNormal, "Started", "Container started"
	other.InvolvedObject.Name, other.InvolvedObject.UID = "web-node", "u-web"
	other.Name = "web-node.1"
	gone := other
	gone.Message, gone.InvolvedObject.Name, gone.InvolvedObject.UID, gone.Source.Host = "Stopping container",
		"gone-node", "u-gone", "node"
	return []v1.Event{e, gone, other}
}

func (f *fakeAgent) WatchEvents() ([]v1.Event, <-chan v1.Event, func()) {
	ended := make(chan v1.Event)
	close(ended)
	return f.Events(), ended, func() {}
}

// Results returns fixed results, and those of the manifests that a test has put into the agent's
// directory.
func (f *fakeAgent) Validated() []source.Result {
	var own []source.Result
	if files, _ := source.List(f.manifests()); len(files) > 0 {
		own = source.Validate(source.Decoder{NodeName: "node"}, nil, f.manifests())
	}
	return append(own, []source.Result{
		{
			File:      "/m/web.yaml",
			Document:  1,
			Kind:      "Pod",
			Namespace: "default",
			Name:      "web-node",
			Accepted:  true,
			Since:     f.began,
		},
		{
			File:      "/m/bad.yaml",
			Document:  1,
			Line:      7,
			Kind:      "Pod",
			Namespace: "default",
			Name:      "bad-node",
			Field:     "spec.containers[0].image",
			Message:   "spec.containers[0].image: Required value",
			Since:     f.began,
		},
		{File: "/m/twin.yaml", Document: 1, Line: 3, Message: "not valid YAML", Since: f.began},
		{
			File:      "/m/twin.yaml",
			Kind:      "Pod",
			Namespace: "other",
			Name:      "twin-node",
			UID:       "u-other",
			Accepted:  true,
			Kept:      true,
			Since:     f.began,
		},
	}...)
}

// manifests is the agent's manifest directory, which tests may make.
func (f *fakeAgent) manifests() string { return filepath.Join(f.dir, "manifests") }

func (f *fakeAgent) Pulls(context.Context) []api.Pull {
	return []api.Pull{{
		Image:   "img:2",
		State:   "Pulling",
		Since:   f.began.Add(-10 * time.Hour),
		Done:    3_000_000,
		Total:   12_000_000,
		Waiters: 1,
	}}
}

func (f *fakeAgent) Healthy(time.Duration) error { return nil }
func (f *fakeAgent) DevicePluginsServed() error  { return nil }

func (f *fakeAgent) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1.0"}, nil
}

func (f *fakeAgent) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	return []*runtimeapi.PodSandbox{{Id: "s"}}, nil
}

func (f *fakeAgent) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	return nil, nil
}

// ContainerStatus knows containers as NAMEATTEMPT. main runs; all others have ended.
func (f *fakeAgent) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	name := strings.TrimRight(id, "0123456789")
	if name == "brief" {
		f.mu.Lock()
		f.brief.ended = true
		f.mu.Unlock()
	}
	path := filepath.Join(f.dir, "logs", "default_web-node_u-web", name, strings.TrimPrefix(id, name)+".log")
	if _, err := os.Stat(path); err != nil {
		return nil, errdefs.ErrNotFound
	}
	return &runtimeapi.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_EXITED, LogPath: path}, nil
}

func (f *fakeAgent) Images(context.Context) ([]api.Image, error) {
	return []api.Image{
		{ID: "sha256:0123456789abcdef", Tags: []string{"reg:5000/img:1"}, Size: 2_100_000, InUse: true},
		{ID: "sha256:1", Tags: []string{"old:1"}, Size: 1_000_000, LastUsed: f.began.Add(-3 * time.Hour)},
		{ID: "sha256:2", Size: 500_000},
	}, nil
}

func (*fakeAgent) Archives() []api.Archive {
	return []api.Archive{
		{Path: "/images/bad.tar", State: api.ArchiveFailed, Error: "not an image archive: EOF"},
		{Path: "/images/new.tar", State: api.ArchiveWaiting},
		{Path: "/images/ok.tar", State: api.ArchiveImported, Images: []string{"old:1"}},
	}
}

func (f *fakeAgent) PruneImages(ctx context.Context, dryRun bool) ([]api.Image, error) {
	images, err := f.Images(ctx)
	if !dryRun {
		return images[1:2], errors.New("remove image sha256:2: busy")
	}
	return images[1:], err
}

func (f *fakeAgent) ExecSync(context.Context, string, []string, time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	return &runtimeapi.ExecSyncResponse{}, nil
}

func (f *fakeAgent) Exec(_ context.Context, req *runtimeapi.ExecRequest) (string, error) {
	resp, err := f.streaming.GetExec(req)
	return resp.GetUrl(), err
}

func (f *fakeAgent) Attach(_ context.Context, req *runtimeapi.AttachRequest) (string, error) {
	resp, err := f.streaming.GetAttach(req)
	return resp.GetUrl(), err
}

func (f *fakeAgent) CheckpointContainer(context.Context, string, string, time.Duration) error {
	return errdefs.ErrNotImplemented
}

func (f *fakeAgent) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (string, error) {
	resp, err := f.streaming.GetPortForward(req)
	return resp.GetUrl(), err
}

// fakeStreams runs three commands: echo, cat and exit.
type fakeStreams struct{}

func (fakeStreams) Exec(
	_ context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	_ <-chan remotecommand.TerminalSize,
) error {
	switch cmd[0] {
	case "echo":
		fmt.Fprintln(out, id, strings.Join(cmd[1:], " "), tty)
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "exit":
		code, err := strconv.Atoi(cmd[1])
		if err != nil {
			return err
		}
		fmt.Fprintln(errOut, "on stderr")
		return utilexec.CodeExitError{Err: fmt.Errorf("exit %d", code), Code: code}
	case "tar", "test", "ls":
		if name := cmd[len(cmd)-1]; name == "endless" || name == "outside" {
			return endless(out, name)
		}
		if cmd[len(cmd)-1] == "sly" {
			fmt.Fprint(errOut, "\x1b[2J\x1b[31mall is well\x1b]0;title\x07")
			return utilexec.CodeExitError{Err: errors.New("exit 2"), Code: 2}
		}
		if cmd[len(cmd)-1] == "loud" {
			fmt.Fprintln(errOut, "begins", strings.Repeat("x", 1<<20), "ends")
			return utilexec.CodeExitError{Err: errors.New("exit 2"), Code: 2}
		}
		// from this machine, with its paths as the container's paths
		tool := exec.Command(cmd[0], cmd[1:]...)
		tool.Stdin, tool.Stdout, tool.Stderr = in, out, errOut
		var exit *exec.ExitError
		if err := tool.Run(); errors.As(err, &exit) {
			return utilexec.CodeExitError{Err: err, Code: exit.ExitCode()}
		} else if err != nil {
			return err
		}
	default:
		return fmt.Errorf("no such program: %s", cmd[0])
	}
	return nil
}

// endless sends an archive whose end it does not find, until nobody reads it any more. Its file is
// "endless", or outside of what was asked for.
func endless(out io.Writer, name string) error {
	archive := tar.NewWriter(out)
	if name == "outside" {
		name = "outside/../../x"
	}
	err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Typeflag: tar.TypeReg})
	for err == nil {
		_, err = out.Write(make([]byte, 32<<10))
	}
	return err
}

func (fakeStreams) Attach(
	_ context.Context, id string, _ io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize,
) error {
	fmt.Fprintln(out, "attached to", id)
	return nil
}

func (fakeStreams) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	_, err := fmt.Fprintf(stream, "port %d of %s\n", port, id)
	return err
}

func (f *fakeAgent) Summary(context.Context, bool) *statsapi.Summary {
	used := func(cores, bytes uint64) (*statsapi.CPUStats, *statsapi.MemoryStats) {
		return &statsapi.CPUStats{UsageNanoCores: &cores}, &statsapi.MemoryStats{
			WorkingSetBytes: &bytes, AvailableBytes: &bytes,
		}
	}
	s := &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "node"}}
	s.Node.CPU, s.Node.Memory = used(0, 1<<30)
	for _, pod := range f.Pods() {
		p := statsapi.PodStats{PodRef: statsapi.PodReference{
			Namespace: pod.Namespace,
			Name:      pod.Name,
			UID:       string(pod.UID),
		}}
		p.CPU, p.Memory = used(0, uint64(len(s.Pods)+1)<<20)
		for i, c := range pod.Spec.Containers {
			k := statsapi.ContainerStats{Name: c.Name}
			k.CPU, k.Memory = used(uint64(i)*1_500_000, 1<<20)
			p.Containers = append(p.Containers, k)
		}
		s.Pods = append(s.Pods, p)
	}
	return s
}

func (*fakeAgent) Resource() prometheus.Gatherer { return prometheus.NewRegistry() }
func (*fakeAgent) Cadvisor() prometheus.Gatherer { return prometheus.NewRegistry() }

func (f *fakeAgent) Notes(ctx context.Context) api.Notes {
	st := f.Node(ctx)
	return api.Notes{SilentSince: st.Runtime.SilentSince, Error: st.Runtime.Error, Drain: st.Drain}
}

func (f *fakeAgent) Node(context.Context) api.NodeStatus {
	runtime := api.Runtime{Name: "containerd", Version: "v2.4.2"}
	if f.silent() {
		runtime.SilentSince, runtime.Error = &f.began, "refused"
	}
	drain := api.Drain{State: api.Open}
	if f.has("drained") {
		drain = api.Drain{State: api.Draining, Since: f.began}
	}
	return api.NodeStatus{
		Runtime: runtime, Drain: drain,
		Resources: &api.Resources{
			Capacity:     v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourcePods: resource.MustParse("110")},
			Allocatable:  v1.ResourceList{v1.ResourceCPU: resource.MustParse("3"), v1.ResourcePods: resource.MustParse("110")},
			Requested:    v1.ResourceList{v1.ResourceCPU: resource.MustParse("1500m"), v1.ResourcePods: resource.MustParse("4")},
			ReservedCPUs: "0",
		},
	}
}
