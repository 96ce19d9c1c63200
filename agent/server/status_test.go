package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/internal/pods"
)

// The status counts pods by their states, and names what needs a person: each fault of the node,
// refused manifests, and pods that do not come up by themselves.
func TestNodeStatus(t *testing.T) {
	since := time.Now()
	pod := func(name string, phase v1.PodPhase, change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: v1.PodStatus{Phase: phase},
		}
		change(p)
		return p
	}
	waits := func(reason string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.ContainerStatuses = []v1.ContainerStatus{{
				Name: "c", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}},
			}}
		}
	}
	nothing := func(*v1.Pod) {}
	f := &fixture{pods: []*v1.Pod{
		pod("a", v1.PodRunning, func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}
		}),
		pod("b", v1.PodRunning, waits("CrashLoopBackOff")), pod("c", v1.PodPending, waits("ContainerCreating")),
		pod("d", v1.PodFailed, nothing), pod("e", v1.PodSucceeded, nothing),
		pod("f", v1.PodRunning, func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: since} }),
		pod("g", v1.PodFailed, func(p *v1.Pod) {
			p.Annotations = map[string]string{pods.AnnotationSource: pods.SourceAPI}
		}),
	}, results: []source.Result{
		{File: "x.yaml", Line: 7, Field: "spec", Message: "Required value"},
		{File: "x.yaml"},
		{File: "y.yaml", Accepted: true},
	}}
	f.node = api.NodeStatus{
		Runtime: api.Runtime{SilentSince: &since, Error: "refused"},
		Cluster: &api.Cluster{Server: "https://api", Late: true}, Pressure: []string{"DiskPressure"},
		Drain: api.Drain{State: api.Drained}, Config: &api.ConfigFault{Since: since, Error: "c.yaml:3: maxPods"},
		Archives: []api.Archive{
			{Path: "/i/a.tar", State: api.ArchiveImported}, {Path: "/i/b.tar", State: api.ArchiveFailed, Error: "no tar"},
		},
	}
	s := &Server{backend: f, cfg: Config{Node: "n", Version: "v", RootDir: "/r", Endpoint: "unix:///c"}, began: since}
	st := s.nodeStatus(t.Context())
	if got, want := fmt.Sprint(st.Pods),
		"map[Failed:2 NotReady:1 Pending:1 Running:1 Succeeded:1 Terminating:1]"; got != want {
		t.Errorf("pods %s, want %s", got, want)
	}
	if st.Manifests != (api.ManifestCounts{Accepted: 1, Refused: 2}) || st.RootDir != "/r" || st.Version != "v" {
		t.Errorf("%+v", st)
	}
	wants := []string{
		"unix:///c does not answer since", "https://api has not accepted the node's lease at all",
		"(DiskPressure)", "the config on the disk is refused since", "drained",
		"manifest x.yaml: refused: line 7: spec: Required value: see",
		"image archive /i/b.tar: not imported: no tar: replace the file",
		"pod ns/b: container c: CrashLoopBackOff: see", "pod ns/d: Failed: see",
	}
	if len(st.Attention) != len(wants) {
		t.Fatalf("attention %q", st.Attention)
	}
	for i, want := range wants {
		if !strings.Contains(st.Attention[i], want) {
			t.Errorf("attention %q, want %q", st.Attention[i], want)
		}
	}
	f.pods, f.results = nil, nil
	f.node = api.NodeStatus{Drain: api.Drain{State: api.Open}, Cluster: &api.Cluster{Renewed: since}}
	if st := s.nodeStatus(t.Context()); len(st.Attention) != 0 {
		t.Errorf("a node that is well: %q", st.Attention)
	}
	f.node.Runtime.Faults = []string{"container runtime network not ready: x"}
	if st := s.nodeStatus(t.Context()); len(st.Attention) != 1 {
		t.Errorf("a network that is not ready: %q", st.Attention)
	}
}

func TestSomeNamesOnly(t *testing.T) {
	names := make([]string, maxNamed+2)
	if got := some(names); len(got) != maxNamed+1 || got[maxNamed] != "and 2 more" {
		t.Errorf("%q", got)
	}
}
