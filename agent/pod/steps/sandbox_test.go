package steps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/generate"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
)

// sandboxless is a runtime that makes no sandbox.
type sandboxless struct {
	cri.Runtime
	err error
}

func (r sandboxless) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	return "", r.err
}

func (r sandboxless) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return nil, errors.New("no status")
}

// noUsers are user namespaces that no pod can have.
type noUsers struct{ err error }

func (n noUsers) Supported(string) error                            { return n.err }
func (noUsers) Ensure(types.UID) (*runtimeapi.UserNamespace, error) { return nil, nil }

// TestSandboxEvents: events report a sandbox's errors in the kubelet's words, without what berth
// was doing.
func TestSandboxEvents(t *testing.T) {
	apart := false
	long := strings.Repeat("n", 60)
	fqdn := true
	for name, test := range map[string]struct {
		spec     v1.PodSpec
		runtime  error
		handler  error
		users    error
		says     string // after the text that every such event begins with
		returned string
	}{
		"runtime": {
			runtime: errors.New("failed to setup network"), says: "failed to setup network",
			returned: "running the sandbox: failed to setup network",
		},
		"handler": {
			handler: errors.New(`RuntimeClass "gone" not found`), says: `RuntimeClass "gone" not found`,
			returned: `running the sandbox: RuntimeClass "gone" not found`,
		},
		"users": {
			spec:  v1.PodSpec{HostUsers: &apart},
			users: errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces"),
			says:  "can't set `spec.hostUsers: false`, runtime does not support user namespaces",
			returned: "failed to generate sandbox config: can't set `spec.hostUsers: false`, runtime does not " +
				"support " +
				"user namespaces",
		},
		"config": {
			spec: v1.PodSpec{Hostname: "h", Subdomain: long, SetHostnameAsFQDN: &fqdn},
			says: "failed to construct FQDN from pod hostname and cluster domain, FQDN h." + long +
				".ns.svc.cluster.local is too long (64 characters is the max, 83 characters requested)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var events eventLog
			s := Sandbox{
				Runtime: sandboxless{err: test.runtime}, Events: &events, Run: func(string, time.Duration, error) {},
				UserNamespaces: noUsers{test.users},
				Resources: func(*v1.Pod) (*runtimeapi.LinuxContainerResources, *runtimeapi.LinuxContainerResources) {
					return nil, nil
				},
				Handler: func(*v1.Pod) (string, error) { return "", test.handler },
				Node: func(*v1.Pod) generate.Node {
					return generate.Node{DNS: generate.NodeDNS{ClusterDomain: "cluster.local"}}
				},
			}
			p := &Sync{
				Given: Given{Pod: &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"}, Spec: test.spec,
				}},
				Actions: plan.Actions{CreateSandbox: true},
			}
			_, err := s.Ensure(t.Context(), p)
			if want := "Warning FailedCreatePodSandBox Failed to create pod sandbox: " + test.says; len(events) != 1 ||
				events[0] != want {
				t.Errorf("events %q, want %q", events, want)
			}
			if err == nil || test.returned != "" && err.Error() != test.returned {
				t.Errorf("returned %v, want %s", err, test.returned)
			}
		})
	}
}

// sandboxed is a runtime that makes every sandbox.
type sandboxed struct{ cri.Runtime }

func (sandboxed) RunPodSandbox(context.Context, *runtimeapi.PodSandboxConfig, string) (string, error) {
	return "id", nil
}

func (sandboxed) PodSandboxStatus(context.Context, string) (*runtimeapi.PodSandboxStatus, error) {
	return &runtimeapi.PodSandboxStatus{Id: "id"}, nil
}

func (sandboxed) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return nil, errors.New("no status")
}

// TestSandboxWarns: a pod that asks for the cluster's DNS and cannot have it gets one event for
// each sandbox, and so does the node.
func TestSandboxWarns(t *testing.T) {
	var events eventLog
	s := Sandbox{
		Runtime: sandboxed{}, Events: &events, Run: func(string, time.Duration, error) {},
		Resources: func(*v1.Pod) (*runtimeapi.LinuxContainerResources, *runtimeapi.LinuxContainerResources) {
			return nil, nil
		},
		Handler: func(*v1.Pod) (string, error) { return "", nil },
		Node:    func(*v1.Pod) generate.Node { return generate.Node{DNS: generate.NodeDNS{Cluster: true}} },
	}
	p := &Sync{
		Given: Given{Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
			Spec:       v1.PodSpec{DNSPolicy: v1.DNSClusterFirst},
		}},
		Actions: plan.Actions{CreateSandbox: true},
	}
	if _, err := s.Ensure(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.Observed, p.Actions = plan.Observed{Sandboxes: []*runtimeapi.PodSandboxStatus{p.Sandbox}},
		plan.Actions{SandboxID: "id"}
	if _, err := s.Ensure(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	const missing = `kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" ` +
		`policy. Falling back to "Default" policy.`
	want := []string{
		"node Warning MissingClusterDNS " + missing, `Warning MissingClusterDNS pod: "pod_ns(uid)". ` + missing,
	}
	if !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

// sandboxOf returns the step of a pod that asks nothing of its sandbox.
func sandboxOf(runtime cri.Runtime, events *eventLog) Sandbox {
	return Sandbox{
		Runtime: runtime, Events: events, Run: func(string, time.Duration, error) {},
		Resources: func(*v1.Pod) (*runtimeapi.LinuxContainerResources, *runtimeapi.LinuxContainerResources) {
			return nil, nil
		},
		Handler: func(*v1.Pod) (string, error) { return "", nil },
		Node:    func(*v1.Pod) generate.Node { return generate.Node{} },
	}
}

// TestSandboxHostPortTaken: a pod runs on a host port on which a program of the node listens, and
// has an event of it.
func TestSandboxHostPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := int32(netip.MustParseAddrPort(taken.Addr().String()).Port())
	var events eventLog
	s := sandboxOf(sandboxed{}, &events)
	p := &Sync{
		Given: Given{Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
			Spec: v1.PodSpec{DNSPolicy: v1.DNSDefault, Containers: []v1.Container{
				{Name: "c", Ports: []v1.ContainerPort{{ContainerPort: 80, HostPort: port}}},
			}},
		}},
		Actions: plan.Actions{CreateSandbox: true},
	}
	if _, err := s.Ensure(t.Context(), p); err != nil || p.Sandbox == nil {
		t.Fatalf("sandbox %v, %v", p.Sandbox, err)
	}
	want := fmt.Sprintf("of the node listens on hostPort %d/TCP of container c, too", port)
	if len(events) != 1 || !strings.HasPrefix(events[0], "Warning HostPortTaken ") || !strings.Contains(events[0], want) {
		t.Errorf("events %q, want %q", events, want)
	}
}
