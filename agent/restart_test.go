package agent

import (
	"context"
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

	"github.com/berthd/berth/agent/metrics"
	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// noCgroups is a machine without cgroups. removed, where it is set, is told whose it was to remove.
type noCgroups struct{ removed func(types.UID) }

func (noCgroups) Setup(context.Context) error                        { return nil }
func (noCgroups) EnsurePod(context.Context, *v1.Pod) (string, error) { return "", nil }
func (noCgroups) UpdateQoS(context.Context, []*v1.Pod) error         { return nil }
func (c noCgroups) RemovePod(_ context.Context, uid types.UID) error {
	if c.removed != nil {
		c.removed(uid)
	}
	return nil
}

func (noCgroups) SandboxResources(*v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources) {
	return nil, nil
}

func (noCgroups) ContainerResources(*v1.Pod, *v1.Container) *runtimeapi.LinuxContainerResources {
	return &runtimeapi.LinuxContainerResources{}
}

// manifest is a source of one manifest, which may be empty.
type manifest string

func (manifest) Name() string { return source.NameFile }

func (m manifest) Run(ctx context.Context, out func(source.Snapshot)) error {
	s := source.Snapshot{Source: source.NameFile, Ready: true}
	for _, i := range (source.Decoder{NodeName: "node"}).Decode("pod.yaml", []byte(m)) {
		if i.Pod != nil {
			s.Pods = append(s.Pods, i.Pod)
		}
	}
	out(s)
	<-ctx.Done()
	return nil
}

// live runs an agent in dir on a connection of its own to the runtime, until end is called. At its end it is cut off first, as if it were killed.
func live(t *testing.T, dir string, rt *fake.Runtime, from source.Source) (a *Agent, end func()) {
	t.Helper()
	return liveWith(t, dir, rt, from, Deps{}, nil)
}

// liveWith is live with some of the surroundings: a cluster, where it has a Conn, and cgroups.
func liveWith(t *testing.T, dir string, rt *fake.Runtime, from source.Source, with Deps, options func(*configs.Config)) (a *Agent, end func()) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, _, err := configs.Load(configs.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	cfg.RootDir, cfg.Kubelet.PodLogsDir, cfg.Berth.ContainerLogsDir = filepath.Join(dir, "root"), filepath.Join(dir, "logs"), filepath.Join(dir, "links")
	cfg.HostnameOverride = "node"
	cfg.Berth.ImagesDir, cfg.Kubelet.ResolverConfig = "", ptr.To("")
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
	with.Runtime, with.Node, with.Metrics, with.Logger, with.Sources = own, n, metrics.New("node", "test"), log, []source.Source{from}
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
	const pod = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 20, containers: [{name: app, image: app}]}}`)
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
		time.Sleep(6 * time.Second) // 21 s after its end began
		got := a.Pods()[0]
		if got.Status.Phase != v1.PodFailed || got.Status.Reason != "Evicted" || got.Status.Message != "The node was low on resource: memory." || got.DeletionTimestamp != nil {
			t.Errorf("%s %s %q, deleted at %v", got.Status.Phase, got.Status.Reason, got.Status.Message, got.DeletionTimestamp)
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

// Since when a pod is leaving is told once, and never otherwise, whatever becomes of the agent; and one that was leaving leaves.
func TestLeavingSinceNeverMoves(t *testing.T) {
	const pod = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {terminationGracePeriodSeconds: 600, containers: [{name: app, image: app}]}}`)
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), fake.New(fake.Config{WriteLogs: true})
		rt.Script("app", fake.Behavior{Term: fake.Term{Ignore: true}})
		a, end := live(t, dir, rt, pod)
		time.Sleep(5 * time.Second)
		uid := a.Pods()[0].UID
		a.workers.Remove(uid)
		if p := a.Pods()[0]; p.DeletionTimestamp != nil { // a kill here would have another agent say another time
			if records, err := a.checkpoint.Load(); err != nil || records[uid].Leaving.IsZero() {
				t.Errorf("leaving since %s, which is not on record, %v", p.DeletionTimestamp, err)
			}
		}
		time.Sleep(5 * time.Second)
		since := a.Pods()[0].DeletionTimestamp
		if since == nil || time.Since(since.Time) != 5*time.Second {
			t.Fatalf("leaving since %v", since)
		}
		for range 300 { // of which each writes to its story
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
