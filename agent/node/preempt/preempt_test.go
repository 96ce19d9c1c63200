package preempt

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

// podOf makes a pod of the API server. shape is "cpu memory class": class is g for Guaranteed, b
// for Burstable; a shape that is empty is BestEffort.
func podOf(name, shape string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name),
			Annotations: map[string]string{pods.AnnotationSource: pods.SourceAPI},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
	}
	if f := strings.Fields(shape); len(f) == 3 {
		list := v1.ResourceList{v1.ResourceCPU: resource.MustParse(f[0]), v1.ResourceMemory: resource.MustParse(f[1])}
		p.Spec.Containers[0].Resources.Requests = list
		if f[2] == "g" {
			p.Spec.Containers[0].Resources.Limits = list
		}
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func priority(n int32) func(*v1.Pod) { return func(p *v1.Pod) { p.Spec.Priority = ptr.To(n) } }

func static(p *v1.Pod) { p.Annotations[pods.AnnotationSource] = pods.SourceFile }

func port(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }

// rig is a preemptor that notes what it does.
type rig struct {
	*Preemptor
	did []string
}

func newRig(cluster bool) *rig {
	r := &rig{}
	r.Preemptor = New(Deps{
		Cluster: cluster,
		Stop: func(uid types.UID, s worker.Stop) {
			r.did = append(r.did, fmt.Sprintf("stop %s %s %s %q %v", uid, s.Cause, s.Reason, s.Message, s.Grace))
		},
		Event: func(p *v1.Pod, _, kind, reason, message string) {
			r.did = append(r.did, fmt.Sprintf("event %s %s %s %q", p.Name, kind, reason, message))
		},
		Preempted: func(resource string) { r.did = append(r.did, "count "+resource) },
		Logger:    slog.New(slog.DiscardHandler),
	})
	return r
}

// ask returns who must leave for a pod on a node of 4 cpus, 4000 bytes and some pods.
func (r *rig) ask(pod *v1.Pod, most string, others ...*v1.Pod) (victims []string, stands *admit.Rejection) {
	in := admit.Input{Pod: pod, FromAPI: pods.FromAPI(pod), Others: others, Allocatable: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("4000"),
		v1.ResourcePods: resource.MustParse(most),
	}}
	refused := admit.Check(in)
	if refused == nil {
		return []string{"the pod fits"}, nil
	}
	list, stands := r.Victims(in, refused)
	for _, v := range list {
		victims = append(victims, v.Name)
	}
	return victims, stands
}

// The rules are those that pkg/kubelet/preemption documents: Guaranteed pods are spared most, then
// Burstable pods, then BestEffort pods; in a class as few pods as possible leave, and of these the
// ones with the smallest requests.
func TestVictims(t *testing.T) {
	critical := func(shape string) *v1.Pod { return podOf("critical", shape, priority(pods.Critical)) }
	for name, c := range map[string]struct {
		pod    *v1.Pod
		others []*v1.Pod
		most   string
		want   string
	}{
		"one is enough": {
			critical("1 100 b"),
			[]*v1.Pod{podOf("x", "1 100 b"), podOf("y", "3 100 b")},
			"10", "x",
		},
		"one big one, not many small ones": {
			critical("2 100 b"),
			[]*v1.Pod{podOf("a", "1 100 b"), podOf("b", "1 100 b"), podOf("c", "2 100 b")},
			"10", "c",
		},
		"many, because one has too little": {
			critical("3 100 b"),
			[]*v1.Pod{podOf("a", "1 100 b"), podOf("b", "1 100 b"), podOf("c", "2 100 b")},
			"10", "c a",
		},
		"the smaller memory of two": {
			critical("2 100 b"),
			[]*v1.Pod{podOf("a", "2 300 b"), podOf("b", "2 200 b")},
			"10", "b",
		},
		"the smaller cpu of two": {
			critical("1 100 b"),
			[]*v1.Pod{podOf("a", "2 100 b"), podOf("b", "1500m 100 b"), podOf("c", "500m 100 b")},
			"10", "b",
		},
		"the lower priority of two": {
			critical("2 100 b"),
			[]*v1.Pod{podOf("a", "2 100 b", priority(5)), podOf("b", "2 100 b", priority(3))},
			"10", "b",
		},
		"Guaranteed pods are spared": {
			critical("2 100 b"),
			[]*v1.Pod{podOf("g", "2 100 g"), podOf("a", "1 100 b"), podOf("b", "1 100 b")},
			"10", "a b",
		},
		"unless the others have too little": {
			critical("3 100 b"),
			[]*v1.Pod{podOf("g", "3 100 g"), podOf("a", "1 100 b")},
			"10", "g",
		},
		"BestEffort pods have no resources": {
			critical("2 100 b"),
			[]*v1.Pod{podOf("e", ""), podOf("a", "2 100 b"), podOf("g", "2 100 g")},
			"10", "a",
		},
		"a place among the pods": {
			critical("1 100 b"),
			[]*v1.Pod{podOf("e", ""), podOf("a", "1 100 b"), podOf("g", "1 100 g")},
			"3", "e",
		},
		"a place among the pods, and cpu": {
			critical("2 100 b"),
			[]*v1.Pod{podOf("e", ""), podOf("a", "2 100 b"), podOf("g", "2 100 g")},
			"3", "a",
		},
		"two resources, each from another": {
			critical("2 2000 b"),
			[]*v1.Pod{podOf("a", "3 10 b"), podOf("b", "10m 3000 b"), podOf("c", "990m 990 g")},
			"10", "a b",
		},
		"critical pods stay": {
			critical("1 100 b"),
			[]*v1.Pod{podOf("k", "3 100 b", static), podOf("a", "1 100 b")},
			"10", "a",
		},
		"a critical pod of a lower priority leaves": {
			podOf("critical", "2 100 b", priority(pods.NodeCritical)),
			[]*v1.Pod{podOf("k", "3 100 b", priority(pods.Critical)), podOf("s", "1 100 b", static)},
			"10", "k",
		},
	} {
		victims, stands := newRig(true).ask(c.pod, c.most, c.others...)
		if got := strings.Join(victims, " "); got != c.want || stands != nil {
			t.Errorf("%s: %q %+v, want %q", name, got, stands, c.want)
		}
		slices.Reverse(c.others)
		if again, _ := newRig(true).ask(c.pod, c.most, c.others...); strings.Join(again, " ") != c.want {
			t.Errorf("%s: in another order %q, want %q", name, again, c.want)
		}
	}
}

func TestRefusalStands(t *testing.T) {
	full := podOf("full", "4 100 b")
	for name, c := range map[string]struct {
		cluster bool
		pod     *v1.Pod
		other   *v1.Pod
		reason  string
		message string
	}{
		"an ordinary pod": {true, podOf("a", "1 100 b", priority(pods.Critical-1)), full, "OutOfcpu", ""},
		"a static pod without a cluster": {
			false, podOf("a", "1 100 b", static, priority(pods.Critical-1)), full, "OutOfcpu", "",
		},
		"a port that is taken, too": {
			true, podOf("a", "1 100 b", static, port), podOf("full", "4 100 b", port), "NodePorts", "",
		},
		"too little at all": {
			true, podOf("a", "8 5000 b", priority(pods.Critical)), full, "UnexpectedAdmissionError",
			"Unexpected error while attempting to recover from admission failure: preemption: error finding a set of " +
				"pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 4000), (res: memory, " +
				"q: 1000), ]",
		},
		"only critical pods": {
			true, podOf("a", "1 100 b", priority(pods.NodeCritical)), podOf("full", "4 100 b", static),
			"UnexpectedAdmissionError", "",
		},
		"too little, without a cluster": {
			false, podOf("a", "8 100 b", static, priority(pods.Critical)), full, "OutOfcpu", "",
		},
		"without a cluster, one of the same priority": {
			false, podOf("a", "1 100 b", static, priority(pods.Critical)),
			podOf("full", "4 100 b", static, priority(pods.Critical)), "OutOfcpu", "",
		},
	} {
		victims, stands := newRig(c.cluster).ask(c.pod, "10", c.other)
		if len(victims) != 0 || stands == nil || stands.Reason != c.reason || c.message != "" && stands.Message != c.message {
			t.Errorf("%s: %v %+v", name, victims, stands)
		}
	}
}

// Without a cluster, a static pod is critical only by its priority, or its class.
func TestVictimsWithoutCluster(t *testing.T) {
	classed := podOf("needed", "1 100 b", static, func(p *v1.Pod) { p.Spec.PriorityClassName = "system-node-critical" })
	if got, stands := newRig(false).ask(classed, "10", podOf("web", "4 100 b", static)); len(got) != 1 || stands != nil {
		t.Errorf("%v %+v", got, stands)
	}
}

func TestLeave(t *testing.T) {
	r := newRig(true)
	r.Leave(podOf("web", "1 100 b"), podOf("critical", ""), &admit.Rejection{Lacks: []admit.Shortage{
		{Resource: v1.ResourceMemory, Amount: 1}, {Resource: v1.ResourceCPU, Amount: 1},
	}})
	want := `event web Warning Preempting "Preempted in order to admit critical pod"` + "\n" +
		`stop web Preempted Preempting "Preempted in order to admit critical pod" <nil>` + "\ncount memory"
	if got := strings.Join(r.did, "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
