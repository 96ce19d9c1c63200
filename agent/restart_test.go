package agent

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/stats"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/pods"
)

// noCgroups is a machine without cgroups. made and removed, if they are set, are called with the
// pod of each cgroup to make and to remove.
type noCgroups struct {
	made    func(*v1.Pod)
	removed func(types.UID)
	updated func() // called for each update of the QoS cgroups, if it is set
}

func (noCgroups) SetPinned(func(*v1.Pod, *v1.Container) bool) {}
func (noCgroups) Setup(context.Context) error                 { return nil }
func (c noCgroups) UpdateQoS(context.Context, []*v1.Pod) error {
	if c.updated != nil {
		c.updated()
	}
	return nil
}

func (c noCgroups) EnsurePod(_ context.Context, pod *v1.Pod) (string, error) {
	if c.made != nil {
		c.made(pod)
	}
	return "", nil
}

func (c noCgroups) RemovePod(_ context.Context, uid types.UID) error {
	if c.removed != nil {
		c.removed(uid)
	}
	return nil
}

func (noCgroups) Teardown(context.Context) error             { return nil }
func (noCgroups) Stats() stats.Cgroups                       { return nil }
func (noCgroups) MemoryUsage(*v1.Pod, string) (int64, error) { return 0, fs.ErrNotExist }

func (noCgroups) SandboxResources(*v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	return nil, nil
}

func (noCgroups) ContainerResources(*v1.Pod, *v1.Container) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{}
}

// manifest is a source of one manifest, which may be empty.
type manifest string

func (manifest) Name() string { return pods.SourceFile }

func (m manifest) Run(ctx context.Context, out func(source.Snapshot)) error {
	s := source.Snapshot{Source: pods.SourceFile, Ready: true}
	for _, i := range (source.Decoder{NodeName: "node"}).Decode("pod.yaml", []byte(m)) {
		if i.Pod != nil {
			s.Pods = append(s.Pods, i.Pod)
		}
	}
	out(s)
	<-ctx.Done()
	return nil
}

// live runs an agent in dir on a connection of its own to the runtime, until end is called. end
// first cuts off the connection, as if the agent were killed.
func live(t testing.TB, dir string, rt *fake.Runtime, from source.Source) (a *Agent, end func()) {
	t.Helper()
	return liveWith(t, dir, rt, from, Deps{}, nil)
}

// liveWith is live with some of the dependencies: a cluster, if there is a Conn, and cgroups.
func liveWith(
	t testing.TB, dir string, rt *fake.Runtime, from source.Source, with Deps, options func(*configs.Config),
) (a *Agent, end func()) {
	t.Helper()
	log := with.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RootDir, cfg.Kubelet.PodLogsDir, cfg.Berth.ContainerLogsDir = filepath.Join(dir, "root"),
		filepath.Join(dir, "logs"), filepath.Join(dir, "links")
	cfg.HostnameOverride = "node"
	cfg.Berth.ImagesDir, cfg.Kubelet.ResolverConfig = "", ptr.To("")
	cfg.Kubelet.ImageGCHighThresholdPercent = ptr.To(int32(100)) // the fake has no disk
	cfg.Kubelet.EvictionHard = nil                               // what this machine has left is no matter
	if options != nil {
		options(cfg)
	}
	n, err := node.New(cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	own := rt.Connect()
	ctx, cancel := context.WithCancel(context.Background())
	if with.Cgroups == nil {
		with.Cgroups = noCgroups{}
	}
	with.Runtime, with.Node, with.Metrics, with.Logger, with.Sources = own, n, metrics.New("node", "test"), log,
		[]source.Source{from}
	with.Events = events.New("node")
	a, err = New(ctx, cfg, with)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return a, func() {
		own.Sever()
		cancel()
		<-done
	}
}

// A pod that was being evicted when the agent was killed ends as evicted, and does not come back.
func TestReasonOfAnEndSurvivesTheAgent(t *testing.T) {
	const pod = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: ` +
		`20, containers: [{name: app, image: app}]}}`)
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), fake.New(fake.Config{WriteLogs: true})
		rt.Script("app", fake.Behavior{Term: fake.Term{Ignore: true}})
		a, end := live(t, dir, rt, pod)
		time.Sleep(5 * time.Second)
		pods := a.Pods()
		if len(pods) != 1 || pods[0].Status.Phase != v1.PodRunning {
			t.Fatalf("pods %v", pods)
		}
		a.workers.Stop(pods[0].UID, worker.Stop{Reason: "Evicted", Message: "The node was low on resource: memory."})
		time.Sleep(5 * time.Second)
		end()

		a, end = live(t, dir, rt, pod)
		defer func() { end() }()
		time.Sleep(10 * time.Second)
		if got := a.Pods()[0].Status; got.Phase != v1.PodRunning {
			t.Errorf("phase %s while its container runs", got.Phase)
		}
		time.Sleep(6 * time.Second) // 21 s after the pod began to end
		got := a.Pods()[0]
		if got.Status.Phase != v1.PodFailed || got.Status.Reason != "Evicted" ||
			got.Status.Message != "The node was low on resource: memory." || got.DeletionTimestamp != nil {
			t.Errorf("%s %s %q, deleted at %v", got.Status.Phase, got.Status.Reason, got.Status.Message,
				got.DeletionTimestamp)
		}
		time.Sleep(time.Hour)
		end()
		a, end = live(t, dir, rt, pod)
		time.Sleep(time.Minute)
		if got := a.Pods()[0].Status; got.Phase != v1.PodFailed || got.Reason != "Evicted" {
			t.Errorf("later %s %s", got.Phase, got.Reason)
		}
		if n := len(rt.Calls("StartContainer")); n != 1 {
			t.Errorf("its container was started %d times", n)
		}
	})
}

// The time since when a pod is being removed is reported once and never changes, whatever happens
// to the agent. A pod that was being removed is removed.
func TestLeavingSinceNeverMoves(t *testing.T) {
	const pod = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: ` +
		`600, containers: [{name: app, image: app}]}}`)
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), fake.New(fake.Config{WriteLogs: true})
		rt.Script("app", fake.Behavior{Term: fake.Term{Ignore: true}})
		a, end := live(t, dir, rt, pod)
		time.Sleep(5 * time.Second)
		uid := a.Pods()[0].UID
		a.workers.Remove(uid)
		// after a kill here another agent would report another time
		if p := a.Pods()[0]; p.DeletionTimestamp != nil {
			store, err := checkpoint.Open(filepath.Join(dir, "root", "berth", "pods"))
			if err != nil {
				t.Fatal(err)
			}
			if records, err := store.Load(); err != nil || records[uid].UnwantedSince.IsZero() {
				t.Errorf("leaving since %s, which is not on record, %v", p.DeletionTimestamp, err)
			}
		}
		time.Sleep(5 * time.Second)
		since := a.Pods()[0].DeletionTimestamp
		if since == nil || time.Since(since.Time) != 5*time.Second {
			t.Fatalf("leaving since %v", since)
		}
		for range 300 { // each agent writes to the pod's timeline
			a.workers.Wake(a.Pods()[0].UID)
			time.Sleep(time.Second)
		}
		if got := a.Pods()[0].DeletionTimestamp; !got.Equal(since) {
			t.Errorf("leaving since %v, later since %v", since, got)
		}
		end()

		a, end = live(t, dir, rt, manifest(""))
		defer end()
		time.Sleep(10 * time.Second)
		if got := a.Pods()[0].DeletionTimestamp; !got.Equal(since) {
			t.Errorf("leaving since %v, for another agent since %v", since, got)
		}
		time.Sleep(10 * time.Minute)
		if pods := a.Pods(); len(pods) != 0 {
			t.Errorf("it has not left: %v", pods)
		}
	})
}
