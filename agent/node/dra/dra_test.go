package dra

import (
	"context"
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

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/node/dra/state"
	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/test/dradriver"
	"github.com/berthd/berth/test/env"
)

// gpu is the name of a driver.
const gpu = "gpu.example.com"

// bed is a manager with an API server's claims, and what the manager has told.
type bed struct {
	*Manager
	t    *testing.T
	root string

	mu      sync.Mutex
	claims  map[string]*resourcev1.ResourceClaim
	present map[types.UID]bool
	unknown bool
	events  []string
	deleted chan string
	counts  func(add func(driver string, n int))
	metrics []string
	woken   chan types.UID
}

// ClaimsWorkedOn and the next ones are the bed's metrics.
func (b *bed) ClaimsWorkedOn(operation string, failed bool, _ time.Duration) {
	b.measure(fmt.Sprint(operation, " ", failed))
}

func (b *bed) DRADriverAsked(driver, method, code string, _ time.Duration) {
	b.measure(strings.Join([]string{driver, method, code}, " "))
}

func (b *bed) ResourceClaims(count func(add func(driver string, n int))) { b.counts = count }

func (b *bed) measure(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics = append(b.metrics, what)
}

// used checks how many claims are in use.
func (b *bed) used(want string) {
	b.t.Helper()
	got := map[string]int{}
	b.counts(func(driver string, n int) { got[driver] = n })
	if fmt.Sprint(got) != "map["+want+"]" {
		b.t.Errorf("in use are %v, want %s", got, want)
	}
}

// ResourceClaim returns a claim of the bed.
func (b *bed) ResourceClaim(_ context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.claims[name]
	if c == nil || namespace != "ns" {
		return nil, fmt.Errorf("resourceclaims %q not found", name)
	}
	return c.DeepCopy(), nil
}

// DeleteResourceSlices tells which ResourceSlices are deleted.
func (b *bed) DeleteResourceSlices(_ context.Context, of fields.Selector) error {
	b.deleted <- of.String()
	return nil
}

// start makes a manager over a root directory.
func start(t *testing.T, root string) *bed {
	t.Helper()
	b := &bed{
		t: t, root: root, claims: map[string]*resourcev1.ResourceClaim{}, present: map[types.UID]bool{},
		deleted: make(chan string, 8), woken: make(chan types.UID, 64),
	}
	b.Manager = New(Config{
		Root: root, ExtendedResources: true, CallTimeout: 20 * time.Second, AbsentGrace: 500 * time.Millisecond,
		Health: true, HealthMessages: true,
	}, Deps{
		API:     b,
		Present: func() map[types.UID]bool { return b.present }, Known: func() bool { return !b.unknown },
		Event: func(_, reason, message string) { b.events = append(b.events, reason+": "+message) },
		Wake:  func(uid types.UID) { b.woken <- uid }, Metrics: b, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		for _, list := range b.drivers.byName {
			for _, p := range list {
				_ = p.conn.Close()
			}
		}
	})
	return b
}

// shortDir is a directory with a path short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra") //nolint:usetesting // the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// plug starts a driver and registers it.
func (b *bed) plug(cfg dradriver.Config) *dradriver.Driver {
	b.t.Helper()
	if cfg.Name == "" {
		cfg.Name = gpu
	}
	if cfg.Endpoint == "" {
		cfg.Endpoint = filepath.Join(b.root, cfg.Name+".sock")
	}
	d, err := dradriver.Start(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(d.Stop)
	if err := b.Register(b.t.Context(), found(d, cfg.Name, cfg.Endpoint)); err != nil {
		b.t.Fatal(err)
	}
	return d
}

func found(d *dradriver.Driver, name, endpoint string) plugins.Plugin {
	return plugins.Plugin{Name: name, Endpoint: endpoint, Versions: d.Versions(), Socket: endpoint + "-reg"}
}

// claim makes a claim with devices of drivers, for pods.
func (b *bed) claim(name string, drivers []string, pods ...types.UID) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID("uid of " + name),
	}}
	c.Status.Allocation = &resourcev1.AllocationResult{}
	for _, d := range drivers {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results,
			resourcev1.DeviceRequestAllocationResult{Driver: d})
	}
	for _, uid := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{UID: uid})
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.claims[name] = c
	return c
}

// podWith is a pod whose container has these claims.
func podWith(uid string, claims ...string) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}, {Name: "other"}}},
	}
	for _, name := range claims {
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{
			Name: "my-" + name, ResourceClaimName: ptr.To(name),
		})
		c := &pod.Spec.Containers[0]
		c.Resources.Claims = append(c.Resources.Claims, v1.ResourceClaim{Name: "my-" + name})
	}
	return pod
}

func (b *bed) prepares(pods ...*v1.Pod) {
	b.t.Helper()
	for _, pod := range pods {
		if err := b.Prepare(b.t.Context(), pod); err != nil {
			b.t.Fatal(err)
		}
		if !b.Held(pod) || !b.Holds(pod.UID) {
			b.t.Errorf("the claims of pod %s are not noted", pod.Name)
		}
	}
}

func (b *bed) unprepares(uid types.UID) {
	b.t.Helper()
	if err := b.Unprepare(b.t.Context(), uid); err != nil {
		b.t.Fatal(err)
	}
	if b.Holds(uid) {
		b.t.Errorf("pod %s still has claims", uid)
	}
}

// gets checks the CDI devices of a pod's container.
func (b *bed) gets(pod *v1.Pod, container int, want ...string) {
	b.t.Helper()
	list, err := b.CDIDevices(pod, &pod.Spec.Containers[container])
	if err != nil {
		b.t.Error(err)
		return
	}
	var got []string
	for _, d := range list {
		got = append(got, d.GetName())
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("container %d of %s gets %q, want %q", container, pod.Name, got, want)
	}
}

// has checks the claims of the state file: each with its pods.
func (b *bed) has(want ...string) {
	b.t.Helper()
	list, err := state.Read(File(b.root))
	if err != nil {
		b.t.Fatal(err)
	}
	var got []string
	for _, c := range list {
		pods := c.PodUIDs.UnsortedList()
		slices.Sort(pods)
		got = append(got, fmt.Sprint(c.ClaimName, pods))
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("the file has %q, want %q", got, want)
	}
}

func called(t *testing.T, d *dradriver.Driver, want ...string) {
	t.Helper()
	if got := d.Calls(); !slices.Equal(got, want) {
		t.Errorf("the driver was asked for %q, want %q", got, want)
	}
}

// TestLife prepares a pod's claims of two drivers, of which one has only the older API, and gives
// them back.
func TestLife(t *testing.T) {
	b := start(t, shortDir(t))
	card := b.plug(dradriver.Config{Prepare: func(context.Context, *draapi.Claim) ([]*draapi.Device, error) {
		return []*draapi.Device{
			{PoolName: "p", DeviceName: "0", RequestNames: []string{"big"}, CdiDeviceIds: []string{"a/gpu=0", "a/gpu=all"}},
			{PoolName: "p", DeviceName: "1", RequestNames: []string{"small/x"}, CdiDeviceIds: []string{"a/gpu=1", "a/gpu=all"}},
			{PoolName: "p", DeviceName: "2", ShareId: ptr.To("s"), CdiDeviceIds: []string{"a/gpu=2"}},
		}, nil
	}})
	nic := b.plug(dradriver.Config{Name: "nic.example.com", Old: true})
	b.claim("cards", []string{gpu, gpu}, "u1")
	b.claim("both", []string{"nic.example.com", gpu}, "u1")
	pod := podWith("u1", "cards")
	pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims,
		v1.PodResourceClaim{Name: "made", ResourceClaimTemplateName: ptr.To("t")},
		v1.PodResourceClaim{Name: "none", ResourceClaimTemplateName: ptr.To("t")})
	if err := b.Prepare(t.Context(), pod); err == nil || b.Held(pod) ||
		!strings.Contains(err.Error(), `prepare dynamic resources: pod "ns/u1": ResourceClaim not created yet`) {
		t.Error(err)
	}
	pod.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{
		{Name: "made", ResourceClaimName: ptr.To("both")}, {Name: "none"},
	}
	b.claims["both"].OwnerReferences = []metav1.OwnerReference{{UID: "u1", Controller: ptr.To(true)}}
	pod.Spec.Containers[1].Resources.Claims = []v1.ResourceClaim{
		{Name: "my-cards", Request: "small"}, {Name: "made", Request: "any"}, {Name: "none"},
	}
	if !b.Wants(pod) || b.Wants(podWith("u2")) {
		t.Error("Wants is wrong")
	}
	b.prepares(pod)
	b.gets(pod, 0, "a/gpu=0", "a/gpu=all", "a/gpu=1", "a/gpu=2")
	b.gets(pod, 1, "a/gpu=1", "a/gpu=all", "a/gpu=2", "nic.example.com/device=uid of both")
	b.has("both[u1]", "cards[u1]")
	b.used("<any>:2 gpu.example.com:2 nic.example.com:1")
	start(t, b.root).used("<any>:2 gpu.example.com:2 nic.example.com:1")
	first, second := b.Dynamic(pod, &pod.Spec.Containers[0]), b.Dynamic(pod, &pod.Spec.Containers[1])
	if len(first) != 1 || len(second) != 2 || second[1].GetClaimName() != "both" || second[1].GetClaimNamespace() != "ns" {
		t.Errorf("told of %v and %v", first, second)
	}
	if got := first[0].GetClaimResources(); len(got) != 3 || !proto.Equal(got[2], &resourcesapi.ClaimResource{
		DriverName: gpu, PoolName: "p", DeviceName: "2", ShareId: ptr.To("s"),
		CdiDevices: []*resourcesapi.CDIDevice{{Name: "a/gpu=2"}},
	}) {
		t.Errorf("the devices are %v", got)
	}
	b.prepares(pod) // for another sandbox
	b.unprepares("u1")
	b.unprepares("u1")
	b.has()
	called(t, card, "prepare cards", "prepare both", "unprepare both", "unprepare cards")
	called(t, nic, "prepare both", "unprepare both")
	b.used("<any>:0")
	if want := []string{
		"PrepareResources true", gpu + " /k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources OK",
		"nic.example.com /k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin/NodePrepareResources OK",
		"PrepareResources false", "PrepareResources false",
	}; !slices.Equal(b.metrics[:5], want) {
		t.Errorf("measured %q, want %q", b.metrics, want)
	}
	if got := b.Dynamic(pod, &pod.Spec.Containers[0]); len(got) > 0 {
		t.Errorf("told of %v", got)
	}
	if _, err := b.CDIDevices(pod, &pod.Spec.Containers[0]); err == nil ||
		err.Error() != "ResourceClaim cards of container app is not prepared for the pod" {
		t.Error(err)
	}
}

// A claim that two pods share is prepared once, also if both ask at the same time, and given back
// after the last. A pod that does not have the claim never gives it back.
func TestSharedClaim(t *testing.T) {
	b := start(t, shortDir(t))
	d := b.plug(dradriver.Config{})
	b.claim("shared", []string{gpu}, "u1", "u2", "u3")
	one, two := podWith("u1", "shared"), podWith("u2", "shared")
	var both sync.WaitGroup
	for _, pod := range []*v1.Pod{one, two} {
		both.Go(func() {
			if err := b.Prepare(t.Context(), pod); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	b.has("shared[u1 u2]")
	b.unprepares("u3")
	b.unprepares("u1")
	b.gets(two, 0, gpu+"/device=uid of shared")
	b.unprepares("u2")
	called(t, d, "prepare shared", "unprepare shared")
}

// The next agent gives containers the devices of the file without asking, prepares claims again for
// a new sandbox, and gives the claims back. Pods that are gone lose theirs once all pods are known.
func TestRestart(t *testing.T) {
	root := shortDir(t)
	b := start(t, root)
	d := b.plug(dradriver.Config{})
	b.claim("c1", []string{gpu}, "u1")
	b.claim("c2", []string{gpu}, "u2")
	one, two := podWith("u1", "c1"), podWith("u2", "c2")
	b.prepares(one, two)

	next := start(t, root)
	next.claims = b.claims
	if !next.Held(one) || !next.Holds("u2") {
		t.Error("the next agent does not know whose claims are prepared")
	}
	next.gets(one, 0, gpu+"/device=uid of c1")
	if err := next.Register(t.Context(), found(d, gpu, filepath.Join(root, gpu+".sock"))); err != nil {
		t.Fatal(err)
	}
	next.prepares(one)
	next.gets(one, 0, gpu+"/device=uid of c1")
	next.present, next.unknown = map[types.UID]bool{"u1": true}, true
	next.giveBackOrphans(t.Context())
	next.has("c1[u1]", "c2[u2]")
	next.unknown = false
	next.giveBackOrphans(t.Context())
	next.has("c1[u1]")
	called(t, d, "prepare c1", "prepare c2", "prepare c1", "unprepare c2")
}

// A file that cannot be read is an event. The pods' claims are prepared anew.
func TestFileCutShort(t *testing.T) {
	root := shortDir(t)
	b := start(t, root)
	b.claim("c", []string{gpu}, "u")
	b.plug(dradriver.Config{})
	pod := podWith("u", "c")
	b.prepares(pod)
	data, err := os.ReadFile(File(root))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(File(root), data[:len(data)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	next := start(t, root)
	next.claims = b.claims
	if len(next.events) != 1 || !strings.HasPrefix(next.events[0], "DRAStateUnreadable: ") || next.Held(pod) {
		t.Errorf("events %q", next.events)
	}
	next.plug(dradriver.Config{})
	next.prepares(pod)
	next.has("c[u]")
}

// A driver that hangs holds up only the pods that have its devices, until its time is over.
func TestHangingDriver(t *testing.T) {
	b := start(t, shortDir(t))
	asked := make(chan bool)
	b.plug(dradriver.Config{Prepare: func(ctx context.Context, _ *draapi.Claim) ([]*draapi.Device, error) {
		asked <- true
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	b.plug(dradriver.Config{Name: "quick"})
	b.claim("slow", []string{gpu}, "u1", "u2")
	b.claim("quick", []string{"quick"}, "u3")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() { done <- b.Prepare(ctx, podWith("u1", "slow")) }()
	<-asked
	other, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	if err := b.Prepare(other, podWith("u2", "slow")); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	b.prepares(podWith("u3", "quick"))
	cancel(nil)
	if err := <-done; err == nil || !strings.Contains(err.Error(), "NodePrepareResources: ") {
		t.Error(err)
	}
	b.has("quick[u3]", "slow[u1]")
	b.cfg.CallTimeout = 50 * time.Millisecond
	b.drivers.byName[gpu][0].timeout = b.cfg.CallTimeout
	go func() { done <- b.Prepare(t.Context(), podWith("u1", "slow")) }()
	<-asked
	if err := <-done; err == nil || !strings.Contains(err.Error(), "DeadlineExceeded") {
		t.Error(err)
	}
}

// The pod learns what is wrong with a driver's answer, and the next attempt is as the first. What
// was asked for is given back.
func TestWrongAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		alter func(map[string]*draapi.NodePrepareResourceResponse)
		want  string
	}{
		"another claim": {func(answers map[string]*draapi.NodePrepareResourceResponse) {
			answers["who"] = &draapi.NodePrepareResourceResponse{}
		}, "NodePrepareResources returned result for unknown claim UID who"},
		"none": {
			func(answers map[string]*draapi.NodePrepareResourceResponse) { clear(answers) },
			"NodePrepareResources skipped 1 ResourceClaims",
		},
		"an error": {func(answers map[string]*draapi.NodePrepareResourceResponse) {
			answers["uid of c"].Error = "no power"
		}, "NodePrepareResources failed for ResourceClaim c: no power"},
	} {
		t.Run(name, func(t *testing.T) {
			b := start(t, shortDir(t))
			b.claim("c", []string{gpu}, "u")
			wrong := true
			d := b.plug(dradriver.Config{Alter: func(answers map[string]*draapi.NodePrepareResourceResponse) {
				if wrong {
					test.alter(answers)
				}
			}})
			pod := podWith("u", "c")
			if err := b.Prepare(t.Context(), pod); err == nil || err.Error() != "prepare dynamic resources: "+test.want {
				t.Error(err)
			}
			b.has("c[u]")
			wrong = false
			b.prepares(pod)
			b.unprepares("u")
			called(t, d, "prepare c", "prepare c", "unprepare c")
		})
	}
}

// A driver that dies after it prepared a claim takes nothing from the pod. The claim is given back
// when the driver is there again.
func TestDriverDies(t *testing.T) {
	b := start(t, shortDir(t))
	b.claim("c", []string{gpu}, "u")
	pod := podWith("u", "c")
	d := b.plug(dradriver.Config{})
	b.prepares(pod)
	d.Stop()
	b.gets(pod, 0, gpu+"/device=uid of c")
	if err := b.Unprepare(t.Context(), "u"); err == nil || !b.Holds("u") ||
		!strings.Contains(err.Error(), "unprepare dynamic resources: NodeUnprepareResources: ") {
		t.Error(err)
	}
	endpoint := filepath.Join(b.root, gpu+".sock")
	b.Deregister(found(d, gpu, endpoint))
	if err := b.Unprepare(t.Context(), "u"); err == nil || !b.Holds("u") ||
		err.Error() != "unprepare dynamic resources: DRA driver "+gpu+" is not registered" {
		t.Error(err)
	}
	failing := errors.New("busy")
	again := b.plug(dradriver.Config{Unprepare: func(context.Context, *draapi.Claim) error { return failing }})
	if err := b.Unprepare(t.Context(), "u"); err == nil || !b.Holds("u") ||
		!strings.Contains(err.Error(), "NodeUnprepareResources failed for ResourceClaim c: busy") {
		t.Error(err)
	}
	b.has("c[u]")
	failing = nil
	b.unprepares("u")
	called(t, again, "unprepare c", "unprepare c")
}

// Two plugins of a driver are there while it is updated: the newer one is asked, and the other one
// again if the newer one goes. Nobody takes the endpoint of another.
func TestRegistersTwice(t *testing.T) {
	b := start(t, shortDir(t))
	b.claim("c", []string{gpu}, "u")
	older := b.plug(dradriver.Config{})
	endpoint := filepath.Join(b.root, gpu+".sock")
	if err := b.Register(t.Context(), found(older, gpu, endpoint)); err == nil ||
		err.Error() != "endpoint "+endpoint+" already registered for DRA driver plugin "+gpu {
		t.Error(err)
	}
	second := filepath.Join(b.root, "second.sock")
	newer := b.plug(dradriver.Config{Endpoint: second})
	pod := podWith("u", "c")
	env.Eventually(t, "the newer plugin", func() error {
		p, err := b.drivers.get(gpu)
		if err == nil && p.endpoint != second {
			err = fmt.Errorf("it is the one at %s", p.endpoint)
		}
		return err
	})
	b.prepares(pod)
	b.Deregister(plugins.Plugin{Name: gpu, Endpoint: second, Socket: "another"})
	b.Deregister(found(newer, gpu, second))
	b.unprepares("u")
	called(t, newer, "prepare c")
	called(t, older, "unprepare c")
	for _, versions := range [][]string{nil, {"v9.DRAPlugin"}} {
		err := b.Register(t.Context(), plugins.Plugin{Name: "odd", Endpoint: "/x", Versions: versions})
		if err == nil || !strings.Contains(err.Error(), `are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])`) {
			t.Error(err)
		}
	}
}

// Of a pod that may not use its claims, or whose driver is not there, nothing is noted: it can be
// deleted without its drivers.
func TestRefusals(t *testing.T) {
	b := start(t, shortDir(t))
	d := b.plug(dradriver.Config{})
	b.claim("good", []string{gpu}, "u")
	b.claim("theirs", []string{gpu}, "other")
	b.claim("unallocated", nil, "u").Status.Allocation = nil
	b.claim("driverless", []string{"away"}, "u")
	b.claim("foreign", []string{gpu}, "u")
	made := podWith("u", "good")
	made.Spec.ResourceClaims = append(made.Spec.ResourceClaims,
		v1.PodResourceClaim{Name: "made", ResourceClaimTemplateName: ptr.To("t")})
	made.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: ptr.To("foreign")}}
	odd := podWith("u")
	odd.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "x"}}
	for want, pod := range map[string]*v1.Pod{
		`fetch ResourceClaim gone: resourceclaims "gone" not found`:                podWith("u", "good", "gone"),
		"pod u (u) is not allowed to use ResourceClaim theirs (uid of theirs)":     podWith("u", "good", "theirs"),
		"ResourceClaim unallocated: not allocated":                                 podWith("u", "good", "unallocated"),
		"DRA driver away is not registered":                                        podWith("u", "good", "driverless"),
		"ResourceClaim ns/foreign was not created for Pod ns/u (Pod is not owner)": made,
		`pod "ns/u", spec.resourceClaim "x": none of the supported fields are set`: odd,
	} {
		if err := b.Prepare(t.Context(), pod); err == nil || err.Error() != "prepare dynamic resources: "+want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if b.Holds("u") || len(d.Calls()) > 0 {
		t.Errorf("asked for %q", d.Calls())
	}
	b.deps.API = nil
	if err := b.Prepare(t.Context(), podWith("u", "good")); err == nil ||
		!strings.Contains(err.Error(), "no connection to an API server") {
		t.Error(err)
	}
}

// A claim that was deleted and made again under its name waits until the old one is given back.
func TestClaimOfTheSameName(t *testing.T) {
	b := start(t, shortDir(t))
	d := b.plug(dradriver.Config{})
	b.claim("c", []string{gpu}, "u1", "u2")
	b.prepares(podWith("u1", "c"))
	b.claims["c"].UID = "new"
	if err := b.Prepare(t.Context(), podWith("u2", "c")); err == nil || b.Holds("u2") || !strings.Contains(err.Error(),
		"old ResourceClaim with same name c and different UID uid of c still exists") {
		t.Error(err)
	}
	b.unprepares("u1")
	b.prepares(podWith("u2", "c"))
	called(t, d, "prepare c", "unprepare c", "prepare c")
}

// The claim that the scheduler made for extended resources gives its devices to the containers that
// ask for these resources.
func TestExtendedResources(t *testing.T) {
	b := start(t, shortDir(t))
	b.plug(dradriver.Config{Prepare: func(context.Context, *draapi.Claim) ([]*draapi.Device, error) {
		return []*draapi.Device{
			{RequestNames: []string{"container-0-request-0"}, CdiDeviceIds: []string{"a/gpu=0"}},
			{RequestNames: []string{"container-1-request-0"}, CdiDeviceIds: []string{"a/gpu=1"}},
		}, nil
	}})
	b.claim("made", []string{gpu}, "u")
	pod := podWith("u")
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"example.com/gpu": resource.MustParse("1")}
	pod.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "made", RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "app", ResourceName: "example.com/gpu", RequestName: "container-0-request-0"},
			{ContainerName: "other", ResourceName: "example.com/gpu", RequestName: "container-1-request-0"},
		},
	}
	if !b.Wants(pod) {
		t.Error("the pod wants no claim")
	}
	b.prepares(pod)
	b.gets(pod, 0, "a/gpu=0")
	b.gets(pod, 1)
	b.cfg.ExtendedResources = false
	if b.Wants(pod) {
		t.Error("the gate is off, and the pod wants a claim")
	}
	b.gets(pod, 0)
}
