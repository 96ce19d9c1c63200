package noderegistry

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/kube/fake"
)

// someNode is a node in a cluster whose API server and time are fake.
type someNode struct {
	t   *testing.T
	api *fake.Server
	*Registry

	mu     sync.Mutex
	facts  Facts
	events []string
	known  *v1.Node
	end    func()
}

func config() Config {
	return Config{
		Name:          "node",
		Register:      true,
		Labels:        map[string]string{"disk": "ssd"},
		Update:        10 * time.Second,
		Report:        5 * time.Minute,
		LeaseDuration: 40 * time.Second,
		Taints:        []v1.Taint{{Key: "dedicated", Value: "x", Effect: v1.TaintEffectNoSchedule}},
	}
}

func someFacts() Facts {
	list := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse("2"),
		v1.ResourceMemory: resource.MustParse("8Gi"),
		v1.ResourcePods:   resource.MustParse("110"),
	}
	return Facts{
		Addresses:   []string{"192.0.2.1", "2001:db8::1"},
		Capacity:    list,
		Allocatable: list.DeepCopy(),
		Port:        10250,
		Info:        v1.NodeSystemInfo{BootID: "boot", KubeletVersion: "v1.36.3+berth"},
		Images:      []v1.ContainerImage{{Names: []string{"i"}, SizeBytes: 7}},
	}
}

// registered gives fn a node whose registry runs until fn returns.
func registered(t *testing.T, cfg Config, fn func(t *testing.T, n *someNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &someNode{t: t, api: fake.New(), facts: someFacts()}
		defer n.api.Close()
		n.start(cfg)
		defer func() { n.end() }()
		fn(t, n)
	})
}

func (n *someNode) start(cfg Config) {
	conn := n.api.Conn(kube.Config{})
	nodes, err := kube.Nodes(conn)
	if err != nil {
		n.t.Fatal(err)
	}
	leases, err := kube.Leases(conn)
	if err != nil {
		n.t.Fatal(err)
	}
	n.Registry = New(cfg, Deps{
		Nodes: nodes, Leases: leases, Logger: slog.New(slog.DiscardHandler),
		Facts: func(context.Context) Facts {
			n.mu.Lock()
			defer n.mu.Unlock()
			return n.facts
		},
		Known: func(node *v1.Node) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.known = node
		},
		Registered: func() { n.change(func(f *Facts) { f.Fresh = false }) },
		Event: func(_, reason, message string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, reason+": "+message)
		},
	})
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	n.end = func() {
		cancel()
		if err := <-done; err != nil {
			n.t.Error(err)
		}
		conn.CloseConnections()
		synctest.Wait()
	}
}

func (n *someNode) change(fn func(f *Facts)) {
	n.mu.Lock()
	fn(&n.facts)
	n.mu.Unlock()
}

// node returns the Node object after a while. The test fails if there is none.
func (n *someNode) node(after time.Duration) *v1.Node {
	n.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	node, ok := n.api.Get(fake.Nodes, "", "node").(*v1.Node)
	if !ok {
		n.t.Fatal("there is no Node")
	}
	return node
}

// requests counts the requests of a method for a resource since its last call.
func (n *someNode) requests(method, resource string) (count int) {
	for _, r := range n.api.Requests() {
		if r.Method == method && strings.Contains(r.Path, "/"+resource) && !strings.Contains(r.Query, "watch=true") {
			count++
		}
	}
	return count
}

func status(n *v1.Node, t v1.NodeConditionType) string {
	c := condition(n.Status.Conditions, t)
	if c == nil {
		return "none"
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func TestRegisters(t *testing.T) {
	registered(t, config(), func(t *testing.T, n *someNode) {
		node := n.node(time.Second)
		for k, v := range map[string]string{
			"disk": "ssd", v1.LabelHostname: "node", v1.LabelOSStable: "linux", "beta.kubernetes.io/os": "linux",
		} {
			if node.Labels[k] != v {
				t.Errorf("label %s is %q", k, node.Labels[k])
			}
		}
		if len(node.Spec.Taints) != 1 || node.Annotations[annotationAttach] != "true" {
			t.Errorf("taints %v, annotations %v", node.Spec.Taints, node.Annotations)
		}
		want := "[{InternalIP 192.0.2.1} {InternalIP 2001:db8::1} {Hostname node}]"
		if got := fmt.Sprint(node.Status.Addresses); got != want ||
			node.Status.DaemonEndpoints.KubeletEndpoint.Port != 10250 {
			t.Errorf("addresses %s, status %+v", got, node.Status)
		}
		for kind, want := range map[v1.NodeConditionType]string{
			v1.NodeReady:          "True KubeletReady: kubelet is posting ready status",
			v1.NodeMemoryPressure: "False KubeletHasSufficientMemory: kubelet has sufficient memory available",
			v1.NodeDiskPressure:   "False KubeletHasNoDiskPressure: kubelet has no disk pressure",
			v1.NodePIDPressure:    "False KubeletHasSufficientPID: kubelet has sufficient PID available",
		} {
			if got := status(node, kind); got != want {
				t.Errorf("%s: %q, want %q", kind, got, want)
			}
		}
		if n.known == nil || n.known.UID != node.UID {
			t.Errorf("known %v", n.known)
		}
		n.recorded(t, "NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady")
	})
}

// recorded fails unless these are the events since its last call.
func (n *someNode) recorded(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	got := n.events
	n.events = nil
	for i := range want {
		want[i] += ": Node node status is now: " + want[i]
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestTransitionsAreRecorded checks the events, which are the kubelet's. A change is a difference
// from what the API server has. So a new agent of a ready node records nothing about its readiness.
func TestTransitionsAreRecorded(t *testing.T) {
	pressures := []string{"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"}
	synctest.Test(t, func(t *testing.T) {
		n := &someNode{t: t, api: fake.New(), facts: someFacts()}
		defer n.api.Close()
		n.facts.Faults = []string{"not yet"}
		n.start(config())
		time.Sleep(time.Minute)
		n.recorded(t, slices.Clone(pressures)...)
		n.change(func(f *Facts) { f.Faults = nil })
		time.Sleep(11 * time.Second)
		n.recorded(t, "NodeReady")
		time.Sleep(time.Hour)
		n.recorded(t)
		n.change(func(f *Facts) { f.Faults = []string{"broken"} })
		time.Sleep(11 * time.Second)
		n.recorded(t, "NodeNotReady")
		n.change(func(f *Facts) { f.Faults = nil })
		time.Sleep(11 * time.Second)
		n.recorded(t, "NodeReady")
		n.end()

		n.start(config()) // again
		time.Sleep(time.Hour)
		n.recorded(t, slices.Clone(pressures)...)
		lost := n.node(time.Second)
		for i := range lost.Status.Conditions {
			lost.Status.Conditions[i].Status = v1.ConditionUnknown
		}
		n.api.Put(fake.Nodes, lost) // as the node controller does
		time.Sleep(11 * time.Second)
		n.recorded(t, append(slices.Clone(pressures), "NodeReady")...)
		for _, step := range []struct {
			cordoned bool
			reason   string
		}{{true, "NodeNotSchedulable"}, {false, "NodeSchedulable"}} {
			node := n.node(time.Second)
			node.Spec.Unschedulable = step.cordoned
			n.api.Put(fake.Nodes, node)
			time.Sleep(11 * time.Second)
			n.recorded(t, step.reason)
		}
		n.end()
	})
}

func TestDoesNotRegisterWhereItMayNot(t *testing.T) {
	cfg := config()
	cfg.Register = false
	registered(t, cfg, func(t *testing.T, n *someNode) {
		time.Sleep(time.Minute)
		if n.api.Get(fake.Nodes, "", "node") != nil {
			t.Error("it registered")
		}
		n.api.Put(fake.Nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}})
		if node := n.node(11 * time.Second); status(node, v1.NodeReady) == "none" || len(node.Labels) != 0 {
			t.Errorf("%+v", node)
		}
	})
}

// What others set on an existing Node stays.
func TestNodeThatIsThereAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &someNode{t: t, api: fake.New(), facts: someFacts()}
		defer n.api.Close()
		n.api.Put(fake.Nodes, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "node", Labels: map[string]string{"disk": "hdd", "their": "label", v1.LabelHostname: "wrong"},
			},
			Spec: v1.NodeSpec{
				Unschedulable: true, Taints: []v1.Taint{{Key: "their", Effect: v1.TaintEffectNoExecute}},
			},
			Status: v1.NodeStatus{
				NodeInfo: v1.NodeSystemInfo{BootID: "before"},
				Capacity: v1.ResourceList{
					"example.com/card": resource.MustParse("3"), "odd": resource.MustParse("1"),
				},
				Conditions: []v1.NodeCondition{
					{Type: "their", Status: v1.ConditionTrue}, {Type: v1.NodeReady, Status: v1.ConditionUnknown},
				},
				Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.9"}},
			},
		})
		n.start(config())
		defer func() { n.end() }()
		node := n.node(time.Second)
		if node.Labels["disk"] != "hdd" || node.Labels["their"] != "label" || node.Labels[v1.LabelHostname] != "node" ||
			node.Labels[v1.LabelOSStable] != "linux" {
			t.Errorf("labels %v", node.Labels)
		}
		if !node.Spec.Unschedulable || len(node.Spec.Taints) != 1 || condition(node.Status.Conditions, "their") == nil {
			t.Errorf("%+v", node)
		}
		if q, a := node.Status.Capacity["example.com/card"],
			node.Status.Allocatable["example.com/card"]; q.Value() != 3 || a.Value() != 3 {
			t.Errorf("an extended resource: %v, %v", q, a)
		}
		if _, odd := node.Status.Capacity["odd"]; odd || len(node.Status.Addresses) != 3 ||
			!strings.HasPrefix(status(node, v1.NodeReady), "True") {
			t.Errorf("%+v", node.Status)
		}
		if got := strings.Join(n.events, ","); !strings.Contains(got,
			"Rebooted: Node node has been rebooted, boot id: boot") {
			t.Errorf("events %s", got)
		}
	})
}

func TestDeletedNodeIsRegisteredAgain(t *testing.T) {
	registered(t, config(), func(t *testing.T, n *someNode) {
		first := n.node(time.Second)
		n.api.Delete(fake.Nodes, "", "node", nil)
		second := n.node(time.Second)
		if first.UID == second.UID || !strings.HasPrefix(status(second, v1.NodeReady), "True") {
			t.Errorf("%s, then %s", first.UID, second.UID)
		}
		// as the garbage collector does
		n.api.Delete(fake.Leases, v1.NamespaceNodeLease, "node", nil)
		time.Sleep(11 * time.Second)
		lease, ok := n.api.Get(fake.Leases, v1.NamespaceNodeLease, "node").(*coordinationv1.Lease)
		if !ok || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != second.UID {
			t.Errorf("lease %+v", lease)
		}
	})
}

// An answer that is read after newer news must not bring back what has changed or was deleted
// since.
func TestLateAnswers(t *testing.T) {
	node := func(uid types.UID, revision string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: uid, ResourceVersion: revision}}
	}
	for name, tc := range map[string]struct {
		events func(r *Registry)
		answer *v1.Node
		want   string
	}{
		"the answer is news": {func(r *Registry) { r.hear(node("a", "5"), 5) }, node("a", "6"), "a 6"},
		"changed meanwhile": {
			func(r *Registry) { r.hear(node("a", "5"), 5); r.hear(node("a", "7"), 7) }, node("a", "6"), "a 7",
		},
		"deleted meanwhile": {func(r *Registry) { r.hear(node("a", "5"), 5); r.hear(nil, 7) }, node("a", "6"), "none"},
		"made":              {func(r *Registry) { r.hear(nil, 0) }, node("a", "6"), "a 6"},
		"made and heard of": {func(r *Registry) { r.hear(nil, 0); r.hear(node("a", "6"), 6) }, node("a", "6"), "a 6"},
		"made again":        {func(r *Registry) { r.hear(node("a", "5"), 5); r.hear(nil, 7) }, node("b", "8"), "b 8"},
		"another one":       {func(r *Registry) { r.hear(nil, 7); r.hear(node("b", "8"), 8) }, node("a", "6"), "b 8"},
		"no numbers":        {func(r *Registry) { r.hear(node("a", "x"), 0) }, node("a", "y"), "a y"},
	} {
		t.Run(name, func(t *testing.T) {
			var told *v1.Node
			r := New(config(), Deps{Known: func(n *v1.Node) { told = n }, Logger: slog.New(slog.DiscardHandler)})
			tc.events(r)
			r.know(tc.answer)
			got := "none"
			if n := r.Node(); n != nil {
				got = string(n.UID) + " " + n.ResourceVersion
			}
			if got != tc.want || told != r.Node() {
				t.Errorf("the node is %s, want %s; told of %v", got, tc.want, told)
			}
		})
	}
}

func TestLeaseIsRenewed(t *testing.T) {
	registered(t, config(), func(t *testing.T, n *someNode) {
		time.Sleep(time.Minute)
		n.api.Requests()
		time.Sleep(10 * time.Minute)
		if puts := n.requests(http.MethodPut, "leases"); puts < 59 || puts > 64 {
			t.Errorf("%d renewals in 10 min", puts)
		}
		lease := n.api.Get(fake.Leases, v1.NamespaceNodeLease, "node").(*coordinationv1.Lease)
		if *lease.Spec.HolderIdentity != "node" || *lease.Spec.LeaseDurationSeconds != 40 ||
			time.Since(lease.Spec.RenewTime.Time) > 11*time.Second {
			t.Errorf("%+v", lease.Spec)
		}
		changed := lease.DeepCopy() // another client's write is no reason to stop
		changed.Labels = map[string]string{"x": "y"}
		n.api.Put(fake.Leases, changed)
		time.Sleep(20 * time.Second)
		lease = n.api.Get(fake.Leases, v1.NamespaceNodeLease, "node").(*coordinationv1.Lease)
		if lease.Labels["x"] != "y" || time.Since(lease.Spec.RenewTime.Time) > 11*time.Second {
			t.Errorf("%+v", lease)
		}
	})
}

// The clock was put back by an hour, while the agent runs or before it started. The Lease's time
// still grows with each renewal, since a controller accepts no renewal that is older than the last
// one. When the clock has caught up, the Lease has the clock's time again.
func TestLeaseGrowsWhenTheClockWasPutBack(t *testing.T) {
	for name, restarts := range map[string]bool{"while it runs": false, "before it began": true} {
		t.Run(name, func(t *testing.T) {
			registered(t, config(), func(t *testing.T, n *someNode) {
				read := func() *coordinationv1.Lease {
					return n.api.Get(fake.Leases, v1.NamespaceNodeLease, "node").(*coordinationv1.Lease)
				}
				time.Sleep(time.Minute)
				if restarts {
					n.end()
				}
				lease := read()
				ahead := metav1.NewMicroTime(lease.Spec.RenewTime.Add(time.Hour))
				lease.Spec.RenewTime = &ahead
				n.api.Put(fake.Leases, lease)
				if restarts {
					n.start(config())
				}
				time.Sleep(15 * time.Second)
				for last := ahead; time.Until(ahead.Time) > 0; {
					time.Sleep(11 * time.Second)
					synctest.Wait()
					now := read().Spec.RenewTime
					if !now.After(last.Time) || now.Sub(ahead.Time) > time.Second && now.After(time.Now()) {
						t.Fatalf("the lease was renewed at %s, and before that at %s; it is %s", now, last, time.Now())
					}
					last = *now
				}
				time.Sleep(time.Minute)
				if age := time.Since(read().Spec.RenewTime.Time); age < 0 || age > 11*time.Second {
					t.Errorf("the lease was renewed %s ago", age)
				}
			})
		})
	}
}

func TestStatusIsWrittenWhereItDiffersAndFromTimeToTime(t *testing.T) {
	registered(t, config(), func(t *testing.T, n *someNode) {
		before := n.node(time.Minute)
		n.api.Requests()
		time.Sleep(time.Hour)
		if patches := n.requests(http.MethodPatch, "nodes"); patches < 11 || patches > 13 {
			t.Errorf("%d writes in an hour without news", patches)
		}
		n.change(func(f *Facts) { f.Faults = []string{"container runtime is down"} })
		after := n.node(11 * time.Second)
		if got := status(after, v1.NodeReady); got != "False KubeletNotReady: container runtime is down" {
			t.Errorf("without a runtime %q", got)
		}
		was, is := condition(before.Status.Conditions, v1.NodeReady), condition(after.Status.Conditions, v1.NodeReady)
		memory := condition(after.Status.Conditions, v1.NodeMemoryPressure)
		if !was.LastTransitionTime.Before(&is.LastTransitionTime) ||
			!memory.LastTransitionTime.Equal(&was.LastTransitionTime) ||
			!was.LastHeartbeatTime.Before(&memory.LastHeartbeatTime) {
			t.Errorf("times: %v then %v; memory %v", was, is, memory)
		}
		n.change(func(f *Facts) { f.Faults = append(f.Faults, "node is shutting down") })
		if got := status(n.node(2*time.Second),
			v1.NodeReady); got != "False KubeletNotReady: [container runtime is down, node is shutting down]" {
			t.Errorf("with two faults %q", got)
		}
		n.change(func(f *Facts) { f.Faults = nil })
		if got := status(n.node(2*time.Second), v1.NodeReady); !strings.HasPrefix(got, "True") {
			t.Errorf("well again %q", got)
		}
		n.change(func(f *Facts) { f.MemoryPressure, f.DiskPressure, f.PIDPressure = true, true, true })
		n.deps.Changed.Notify()
		node := n.node(time.Second)
		for kind, want := range map[v1.NodeConditionType]string{
			v1.NodeMemoryPressure: "True KubeletHasInsufficientMemory: kubelet has insufficient memory available",
			v1.NodeDiskPressure:   "True KubeletHasDiskPressure: kubelet has disk pressure",
			v1.NodePIDPressure:    "True KubeletHasInsufficientPID: kubelet has insufficient PID available",
		} {
			if got := status(node, kind); got != want {
				t.Errorf("%s: %q, want %q", kind, got, want)
			}
		}
	})
}

func TestAPIServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &someNode{t: t, api: fake.New(), facts: someFacts()}
		defer n.api.Close()
		n.api.Stop()
		n.start(config())
		defer func() { n.end() }()
		time.Sleep(10 * time.Minute)
		select {
		case <-n.Read():
			t.Error("it read an API server that is not there")
		default:
		}
		n.api.Start()
		n.node(10 * time.Second)
		n.api.Stop()
		time.Sleep(5 * time.Minute)
		back := time.Now()
		n.api.Start()
		time.Sleep(2500 * time.Millisecond) // an API server that is away is asked for every 2 s
		lease := n.api.Get(fake.Leases, v1.NamespaceNodeLease, "node").(*coordinationv1.Lease)
		if lease.Spec.RenewTime.Time.Before(back) {
			t.Errorf("the lease was renewed at %s, and the API server is back since %s", lease.Spec.RenewTime, back)
		}
	})
}

func TestCloudProvider(t *testing.T) {
	cfg := config()
	cfg.External, cfg.NodeIPs, cfg.ProviderID = true, []string{"192.0.2.1"}, "cloud://1"
	registered(t, cfg, func(t *testing.T, n *someNode) {
		node := n.node(time.Second)
		if len(node.Spec.Taints) != 2 || node.Spec.Taints[1].Key != taintUninitialized ||
			node.Spec.ProviderID != "cloud://1" || node.Annotations[annotationNodeIP] != "192.0.2.1" {
			t.Errorf("%+v", node)
		}
		node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "198.51.100.1"}}
		n.api.Put(fake.Nodes, node)
		if node := n.node(time.Hour); len(node.Status.Addresses) != 1 ||
			node.Status.Addresses[0].Type != v1.NodeExternalIP {
			t.Errorf("the cloud provider's addresses are %v", node.Status.Addresses)
		}
	})
}

// An API server whose answers come too late still receives renewals, often enough for the node to
// live.
func TestLeaseWithLateAnswers(t *testing.T) {
	registered(t, config(), func(t *testing.T, n *someNode) {
		n.node(time.Minute)
		n.api.Fail(func(*http.Request) *fake.Fault { return &fake.Fault{Delay: 30 * time.Second} })
		time.Sleep(time.Minute)
		for range 30 {
			time.Sleep(10 * time.Second)
			lease := n.api.Get(fake.Leases, v1.NamespaceNodeLease, "node").(*coordinationv1.Lease)
			if age := time.Since(
				// a renewal is carried out 20 s after its request, and the next request follows 25
				// s after that one
				lease.Spec.RenewTime.Time); age >= 55*time.Second {
				t.Fatalf("the lease was renewed %s ago", age)
			}
		}
	})
}
