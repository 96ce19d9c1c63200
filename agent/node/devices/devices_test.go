package devices

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/agent/node/topology"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/test/deviceplugin"
	"github.com/berthd/berth/test/env"
)

const card = "example.com/card"

// bed is a running manager, and what it has told.
type bed struct {
	*Manager
	t    *testing.T
	dir  string
	stop func()

	mu       sync.Mutex
	holders  map[types.UID]bool
	unknown  bool
	affected []types.UID
	logged   bytes.Buffer
	events   []string
}

func (b *bed) DevicePluginRegistered(string)          {}
func (b *bed) DevicesAllocated(string, time.Duration) {}

// Write is the bed's log.
func (b *bed) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.logged.Write(line)
}

// start runs a manager over a directory.
func start(t *testing.T, dir string) *bed {
	t.Helper()
	b := &bed{t: t, dir: dir, holders: map[types.UID]bool{}}
	b.Manager = New(Config{Dir: dir, AllocateTimeout: 30 * time.Second}, Deps{
		Holders: func() (map[types.UID]bool, bool) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.holders, !b.unknown
		},
		Changed: func() {},
		Affected: func(uid types.UID) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.affected = append(b.affected, uid)
		},
		Event: func(_, reason, message string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, reason+" "+message)
		},
		Metrics: b, Logger: slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	b.stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(func() {
		b.stop()
		if t.Failed() {
			t.Log(b.logged.String())
		}
	})
	return b
}

// shortDir is a directory with a path short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dp") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "device-plugins")
}

// plug starts and registers a plugin, and waits until its devices count.
func (b *bed) plug(cfg deviceplugin.Config) *deviceplugin.Plugin {
	b.t.Helper()
	if cfg.Resource == "" {
		cfg.Resource = card
	}
	if cfg.Socket == "" {
		cfg.Socket = "card.sock"
	}
	cfg.Dir = b.dir
	b.listens()
	p, err := deviceplugin.Start(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(p.Stop)
	if err := p.Register(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	env.Eventually(b.t, "the devices of "+cfg.Resource, func() error {
		return b.count(cfg.Resource, len(cfg.Devices), -1)
	})
	return p
}

// listens waits until the manager serves its socket.
func (b *bed) listens() {
	b.t.Helper()
	env.Eventually(b.t, "the socket", func() error {
		_, err := os.Stat(filepath.Join(b.dir, socketName))
		return err
	})
}

// count compares the node's amounts of a resource; -1 is any.
func (b *bed) count(name string, capacity, allocatable int) error {
	all, healthy := b.Capacity()
	c, a := all[v1.ResourceName(name)], healthy[v1.ResourceName(name)]
	if int(c.Value()) != capacity || allocatable >= 0 && int(a.Value()) != allocatable {
		return fmt.Errorf("%s: capacity %d, allocatable %d", name, c.Value(), a.Value())
	}
	return nil
}

// holds makes the pod one that has not ended.
func (b *bed) holds(uid types.UID, ending bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holders[uid] = ending
}

// podOf makes a pod of the API server. Each container is "name count"; a name with a leading "-" is
// an init container, one with "+" a sidecar.
func podOf(uid string, containers ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: uid, UID: types.UID(uid),
		Annotations: map[string]string{pods.AnnotationSource: pods.SourceAPI},
	}}
	for _, text := range containers {
		name, count, _ := strings.Cut(text, " ")
		c := v1.Container{Name: strings.TrimLeft(name, "-+")}
		if count != "" {
			c.Resources.Limits = v1.ResourceList{card: apiresource.MustParse(count)}
		}
		switch name[0] {
		case '-':
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case '+':
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

func never(string) bool { return false }

// give allocates the devices of a pod, and fails the test if it cannot.
func (b *bed) give(pod *v1.Pod) {
	b.t.Helper()
	if err := b.allocate(pod); err != nil {
		b.t.Fatal(err)
	}
}

// Allocate gives all containers of a pod their devices, wherever they are.
func (b *bed) Allocate(ctx context.Context, pod *v1.Pod, running func(string) bool) error {
	p := b.Begin(pod, running)
	for c, ends := range pods.Starting(pod) {
		if err := p.Allocate(ctx, c, ends, topology.Hint{}); err != nil {
			return err
		}
	}
	return nil
}

// allocate asks as admission does: what failed is released.
func (b *bed) allocate(pod *v1.Pod) error {
	b.holds(pod.UID, false)
	err := b.Allocate(b.t.Context(), pod, never)
	if err != nil {
		b.Release(pod.UID)
	}
	return err
}

// has returns the devices of each container, as "app=a,b".
func (b *bed) has(uid types.UID) string {
	b.Manager.mu.Lock()
	defer b.Manager.mu.Unlock()
	var out []string
	for name, resources := range b.pods[uid] {
		for _, a := range resources {
			out = append(out, name+"="+strings.Join(a.list(), ","))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestContainersGetTheirDevices(t *testing.T) {
	b := start(t, shortDir(t))
	b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b", "c", "d")})
	if err := b.count(card, 4, 4); err != nil {
		t.Error(err)
	}
	pod := podOf("one", "-first 2", "+side 1", "app 2", "none")
	if !b.Wants(pod) || b.Wants(podOf("two", "app")) {
		t.Error("it does not know who wants devices")
	}
	b.give(pod)
	if got, want := b.has("one"), "app=b,c first=a,b side=a"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	given, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0])
	if err != nil || len(given.Envs) != 1 || string(given.Envs[0].Value) != "[b c]" {
		t.Errorf("%v, %v", given, err)
	}
	if given, err = b.Container(t.Context(), pod, &pod.Spec.Containers[1]); err != nil || given.Envs != nil {
		t.Errorf("%v, %v", given, err)
	}
}

// A pod that asks for too much is refused in the kubelet's words. It waits instead if a pod that is
// being ended has what is missing. The devices of a pod that has ended are free.
func TestDevicesRunOut(t *testing.T) {
	b := start(t, shortDir(t))
	b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b")})
	b.give(podOf("one", "app 2"))
	second := podOf("two", "app 1")
	want := "requested number of devices unavailable for example.com/card. Requested: 1, Available: 0"
	if err := b.allocate(second); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	b.holds("one", true)
	later := (*Later)(nil)
	if err := b.allocate(second); !errors.As(err, &later) {
		t.Errorf("%v; it does not wait", err)
	}
	b.mu.Lock()
	delete(b.holders, "one")
	b.unknown = true
	b.mu.Unlock()
	if err := b.allocate(second); err == nil || err.Error() != want {
		t.Errorf("a pod lost its devices before all pods were known: %v", err)
	}
	b.mu.Lock()
	b.unknown = false
	b.mu.Unlock()
	b.give(second)
	if got := b.has("two"); got != "app=a" || b.has("one") != "" {
		t.Errorf("two has %s", got)
	}
}

func TestErrorsAreTheKubelets(t *testing.T) {
	b := start(t, shortDir(t))
	p := b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b")})
	pod := podOf("one", "app 1")
	b.give(pod)
	fails := func(pod *v1.Pod, want string) {
		t.Helper()
		if err := b.Allocate(t.Context(), pod, never); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	fails(podOf("one", "app 2"), `pod "one" container "app" changed request for resource "example.com/card" from 1 to 2`)
	p.Set(append(deviceplugin.Devices("b"), &pluginapi.Device{ID: "a", Health: pluginapi.Unhealthy})...)
	env.Eventually(t, "an unhealthy device", func() error { return b.count(card, 2, 1) })
	fails(pod, "previously allocated devices are no longer healthy; cannot allocate unhealthy devices example.com/card")
	if err := b.Allocate(t.Context(), pod, func(string) bool { return true }); err != nil {
		t.Errorf("a container that runs: %v", err)
	}
	p.Stop()
	env.Eventually(t, "no healthy device", func() error { return b.count(card, 2, 0) })
	fails(podOf("two", "app 1"), "no healthy devices present; cannot allocate unhealthy devices example.com/card")
	b.giveUp(time.Now().Add(absentGrace + time.Minute))
	if err := b.count(card, 0, 0); err != nil {
		t.Error(err)
	}
	fails(podOf("three", "app 1"), "cannot allocate unregistered device example.com/card")
}

// The agent and the plugins may restart: each container keeps its devices.
func TestRestart(t *testing.T) {
	dir := shortDir(t)
	b := start(t, dir)
	p := b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b")})
	b.give(podOf("one", "app 1"))
	b.stop()
	p.Stop()

	b = start(t, dir)
	b.holds("one", false)
	if err := b.count(card, 0, 0); err != nil {
		t.Error(err)
	}
	if got := b.Health("one"); len(got) != 0 {
		t.Errorf("the plugin has not said %v", got)
	}
	if !b.Lost(podOf("one", "app 1")) || b.Lost(podOf("two", "app 1")) {
		t.Error("it does not know whose devices are lost while the plugin is away")
	}
	static := podOf("static", "app 1")
	static.Annotations = nil
	later := (*Later)(nil)
	if err := b.allocate(static); !errors.As(err, &later) || later.For != "waiting for the device plugin of "+card {
		t.Errorf("a static pod does not wait for the plugin: %v", err)
	}
	p = b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b")})
	if b.Lost(podOf("one", "app 1")) {
		t.Error("devices are lost although the plugin is there")
	}
	b.give(static)
	if b.has("one") != "app=a" || b.has("static") != "app=b" {
		t.Errorf("one %s, static %s", b.has("one"), b.has("static"))
	}
	p.Stop()
	env.Eventually(t, "the plugin's end", func() error { return b.count(card, 2, 0) })
	b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b")})
	env.Eventually(t, "the plugin's return", func() error { return b.count(card, 2, 2) })
	pod := podOf("one", "app 1")
	if given, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil ||
		string(given.Envs[0].Value) != "[a]" {
		t.Errorf("%v, %v", given, err)
	}
}

// A plugin that registers again replaces the one before, whose end then changes nothing.
func TestPluginRegistersTwice(t *testing.T) {
	b := start(t, shortDir(t))
	first := b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a")})
	if err := first.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "its devices", func() error { return b.count(card, 1, 1) })
	second := b.plug(deviceplugin.Config{Socket: "other.sock", Devices: deviceplugin.Devices("x", "y")})
	env.Eventually(t, "the first is not watched any more", func() error {
		if first.Watched() {
			return errors.New("watched")
		}
		return nil
	})
	first.Stop()
	b.give(podOf("one", "app 2"))
	if b.has("one") != "app=x,y" || !second.Watched() {
		t.Error(b.has("one"))
	}
}

func TestPluginsThatAreTurnedAway(t *testing.T) {
	b := start(t, shortDir(t))
	b.listens()
	for want, r := range map[string]*pluginapi.RegisterRequest{
		`requested API version ["v1"] is not supported`: {Version: "v1", Endpoint: "a.sock", ResourceName: card},
		`the ResourceName "cpu" is invalid`:             {Version: "v1beta1", Endpoint: "a.sock", ResourceName: "cpu"},
		`the endpoint "../a.sock" of the device plugin`: {Version: "v1beta1", Endpoint: "../a.sock", ResourceName: card},
	} {
		if err := deviceplugin.RegisterAs(t.Context(), b.dir, r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := b.count(card, 0, 0); err != nil {
		t.Error(err)
	}
}

// A plugin may also register as one of package plugins.
func TestPluginOfTheRegistry(t *testing.T) {
	b := start(t, shortDir(t))
	b.listens()
	p, err := deviceplugin.Start(deviceplugin.Config{Dir: b.dir, Socket: "a.sock", Devices: deviceplugin.Devices("a")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	found := plugins.Plugin{Name: card, Endpoint: b.dir + "/a.sock", Versions: []string{"v1beta1"}}
	if err := b.Register(t.Context(), found); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "its device", func() error { return b.count(card, 1, 1) })
	b.Deregister(found)
	env.Eventually(t, "its end", func() error { return b.count(card, 1, 0) })
	found.Versions = []string{"v2"}
	if err := b.Register(t.Context(), found); err == nil {
		t.Error("an unknown version is accepted")
	}
}

// A plugin that lists nonsense, prefers what it does not have, or answers nothing, harms only the
// pod that wants its devices.
func TestPluginLies(t *testing.T) {
	b := start(t, shortDir(t))
	empty := false
	b.plug(deviceplugin.Config{
		Devices: deviceplugin.Devices("a", "b", "c"),
		Options: &pluginapi.DevicePluginOptions{GetPreferredAllocationAvailable: true},
		Prefer: func(r *pluginapi.ContainerPreferredAllocationRequest) []string {
			if !slices.Equal(r.GetAvailableDeviceIDs(), []string{"a", "b", "c"}) || r.GetAllocationSize() != 2 {
				t.Errorf("asked %v", r)
			}
			return []string{"ghost", "c", "c", "b", "a"}
		},
		Allocate: func(context.Context, []string) (*pluginapi.AllocateResponse, error) {
			if empty {
				return &pluginapi.AllocateResponse{}, nil
			}
			return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{}, {}}}, nil
		},
	}).Set(append(deviceplugin.Devices("a", "", "b", "c"), deviceplugin.Devices("a")...)...)
	env.Eventually(t, "three devices", func() error { return b.count(card, 3, 3) })
	b.give(podOf("one", "app 2"))
	if got := b.has("one"); got != "app=b,c" {
		t.Errorf("%s, want what the plugin prefers", got)
	}
	empty = true
	if err := b.allocate(podOf("two", "app 1")); err == nil ||
		!strings.HasPrefix(err.Error(), "no containers return in allocation response") {
		t.Error(err)
	}
	if b.has("two") != "" {
		t.Error("the pod that failed keeps a device")
	}
}

// A plugin that hangs holds up its own pods alone, and they get an error in the end. The devices
// are nobody else's meanwhile.
func TestPluginHangs(t *testing.T) {
	b := start(t, shortDir(t))
	asked := make(chan struct{}, 1)
	b.plug(deviceplugin.Config{
		Resource: "example.com/slow", Socket: "slow.sock", Devices: deviceplugin.Devices("s"),
		Allocate: func(ctx context.Context, _ []string) (*pluginapi.AllocateResponse, error) {
			asked <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a")})
	slow := podOf("slow", "app")
	slow.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/slow": apiresource.MustParse("1")}
	ctx, cancel := context.WithCancel(t.Context())
	b.holds("slow", false)
	failed := make(chan error, 1)
	go func() { failed <- b.Allocate(ctx, slow, never) }()
	<-asked
	b.give(podOf("quick", "app 1"))
	other := slow.DeepCopy()
	other.UID = "other"
	if err := b.allocate(other); err == nil || !strings.Contains(err.Error(), "Requested: 1, Available: 0") {
		t.Errorf("a device under way is given to another pod: %v", err)
	}
	cancel()
	if err := <-failed; err == nil {
		t.Error("no error")
	}
	if b.has("slow") != "" {
		t.Error("the pod keeps the device")
	}
}

// A plugin that dies after the allocation cannot prepare the start. The start succeeds once the
// plugin is back.
func TestPluginDiesBeforeTheStart(t *testing.T) {
	b := start(t, shortDir(t))
	prepared := make(chan []string, 2)
	cfg := deviceplugin.Config{
		Devices: deviceplugin.Devices("a"), Options: &pluginapi.DevicePluginOptions{PreStartRequired: true},
		PreStart: func(ids []string) error {
			prepared <- ids
			return nil
		},
	}
	p := b.plug(cfg)
	pod := podOf("one", "app 1")
	b.give(pod)
	p.Stop()
	env.Eventually(t, "the plugin's end", func() error { return b.count(card, 1, 0) })
	if _, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err == nil ||
		!strings.Contains(err.Error(), "PreStartContainer rpc failed") {
		t.Error(err)
	}
	b.plug(cfg)
	if _, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil {
		t.Error(err)
	}
	if ids := <-prepared; !slices.Equal(ids, []string{"a"}) {
		t.Errorf("prepared %v", ids)
	}
}

// A pod that was admitted before the plugin registered gets its devices at the start.
func TestDevicesAtTheStart(t *testing.T) {
	b := start(t, shortDir(t))
	pod := podOf("one", "app 1")
	if given, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil || given.Envs != nil {
		t.Errorf("%v, %v", given, err)
	}
	b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a")})
	b.holds("one", false)
	if given, err := b.Container(t.Context(), pod, &pod.Spec.Containers[0]); err != nil ||
		string(given.Envs[0].Value) != "[a]" {
		t.Errorf("%v, %v", given, err)
	}
}

// The health of a device under a running pod is in the pod's status, and the pod is synced.
func TestHealthOfDevices(t *testing.T) {
	b := start(t, shortDir(t))
	p := b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a", "b")})
	b.give(podOf("one", "app 1"))
	becomes := func(want v1.ResourceHealthStatus) {
		t.Helper()
		env.Eventually(t, string(want), func() error {
			got := b.Health("one")["app"]
			if len(got) != 1 || got[0].Name != card || len(got[0].Resources) != 1 ||
				got[0].Resources[0] != (v1.ResourceHealth{ResourceID: "a", Health: want}) {
				return fmt.Errorf("%v", got)
			}
			return nil
		})
	}
	becomes(v1.ResourceHealthStatusHealthy)
	p.Set(deviceplugin.Devices("b")...) // it has vanished
	becomes(v1.ResourceHealthStatusUnhealthy)
	p.Set(deviceplugin.Devices("a", "b")...)
	becomes(v1.ResourceHealthStatusHealthy)
	p.Stop()
	becomes(v1.ResourceHealthStatusUnknown)
	env.Eventually(t, "syncs of the pod", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.affected) < 3 || slices.ContainsFunc(b.affected, func(uid types.UID) bool { return uid != "one" }) {
			return fmt.Errorf("%v", b.affected)
		}
		return nil
	})
}

func TestAnswersArePutTogether(t *testing.T) {
	got := given(map[string]*allocation{
		"b": {response: &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"A": "2", "B": "2"}, Annotations: map[string]string{"k": "2"},
			Devices:    []*pluginapi.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/other", Permissions: "r"}},
			CdiDevices: []*pluginapi.CDIDevice{{Name: "v.com/c=1"}},
		}},
		"a": {response: &pluginapi.ContainerAllocateResponse{
			Envs: map[string]string{"A": "1"}, Annotations: map[string]string{"k": "1"},
			Devices:    []*pluginapi.DeviceSpec{{ContainerPath: "/dev/x", HostPath: "/dev/null", Permissions: "rw"}},
			Mounts:     []*pluginapi.Mount{{ContainerPath: "/lib/x", HostPath: "/opt/x", ReadOnly: true}},
			CdiDevices: []*pluginapi.CDIDevice{{Name: "v.com/c=1"}, {Name: "v.com/c=2"}},
		}},
	})
	text := fmt.Sprint(got.Envs, got.Devices, got.Mounts, got.CDIDevices, got.Annotations)
	for _, want := range []string{
		`key:"A" value:"1" key:"B" value:"2"`, `host_path:"/dev/null" permissions:"rw"`, `readonly:true`,
		`name:"v.com/c=1" name:"v.com/c=2"`, `map[k:1]`,
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("%s\nhas no %s", text, want)
		}
	}
	if len(got.Devices) != 1 {
		t.Error("two devices at one path")
	}
}

// The pod resources API has each device with its NUMA nodes.
func TestDevicesOfThePodResources(t *testing.T) {
	b := start(t, shortDir(t))
	near := &pluginapi.Device{ID: "near", Health: pluginapi.Healthy, Topology: &pluginapi.TopologyInfo{
		Nodes: []*pluginapi.NUMANode{{ID: 1}, {ID: 0}},
	}}
	sick := &pluginapi.Device{ID: "sick", Health: pluginapi.Unhealthy}
	b.plug(deviceplugin.Config{Devices: append(deviceplugin.Devices("any"), near, sick)})
	b.give(podOf("one", "app 2"))
	text := func(list []*resourcesapi.ContainerDevices) string {
		var out []string
		for _, d := range list {
			out = append(out, fmt.Sprint(d.GetResourceName(), d.GetDeviceIds(), d.GetTopology().GetNodes()))
		}
		return strings.Join(strings.Fields(strings.Join(out, " ")), " ")
	}
	const card = "example.com/card"
	if got, want := text(b.Held("one", "app")), card+"[any] [] "+card+"[near] [] "+card+"[near] [ID:1]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got, want := text(b.Allocatable()), card+"[any] [] "+card+"[near] [ID:1] "+card+"[near] []"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if b.Held("one", "other") != nil || b.Held("two", "app") != nil {
		t.Error("devices of nobody")
	}
}

// A file that is cut short is reported, and the next change replaces it.
func TestCutFile(t *testing.T) {
	dir := shortDir(t)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kubelet_internal_checkpoint")
	if err := os.WriteFile(path, []byte(`{"Data":{"PodDev`), 0o600); err != nil {
		t.Fatal(err)
	}
	b := start(t, dir)
	if len(b.events) != 1 || !strings.Contains(b.events[0], path) {
		t.Errorf("events %q", b.events)
	}
	b.plug(deviceplugin.Config{Devices: deviceplugin.Devices("a")})
	b.give(podOf("one", "app 1"))
	data, err := os.ReadFile(path)
	if err != nil || !json.Valid(data) {
		t.Errorf("%s, %v", data, err)
	}
}

// A panic in the choice of devices leaves no lock.
func TestPanicLeavesNoLock(t *testing.T) {
	m := New(Config{}, Deps{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a resource that is not there makes no panic")
			}
		}()
		_, _ = m.preferred(t.Context(), request{pod: &v1.Pod{}, resource: "example.com/nowhere"})
	}()
	if !m.mu.TryLock() {
		t.Error("the lock is held")
	}
}
