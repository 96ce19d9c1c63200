package admit

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// amounts parses "cpu=1,memory=1Gi".
func amounts(text string) v1.ResourceList {
	out := v1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, q, ok := strings.Cut(pair, "="); ok {
			out[v1.ResourceName(name)] = resource.MustParse(q)
		}
	}
	return out
}

// asking makes a pod with a container for each text. A text that begins with "sidecar ", "init ",
// "overhead " or "pod " belongs there instead.
func asking(name string, texts ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, text := range texts {
		where, what, found := strings.Cut(text, " ")
		if !found {
			where, what = "", text
		}
		c := v1.Container{Resources: v1.ResourceRequirements{Requests: amounts(what)}}
		switch where {
		case "":
			p.Spec.Containers = append(p.Spec.Containers, c)
		case "sidecar":
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "init":
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		case "overhead":
			p.Spec.Overhead = amounts(what)
		case "pod":
			p.Spec.Resources = &v1.ResourceRequirements{Requests: amounts(what)}
		}
	}
	return p
}

func TestResources(t *testing.T) {
	const node = "cpu=4,memory=4Gi,ephemeral-storage=10Gi,pods=3,hugepages-2Mi=8Mi,example.com/gpu=2"
	full := func(name, rest string) string {
		return "OutOf" + name + ": Node didn't have enough resource: " + name + ", " + rest
	}
	for name, c := range map[string]struct {
		node   string
		pod    *v1.Pod
		others []*v1.Pod
		want   string
		detail string
	}{
		"nothing asked of a full node": {node, asking("p", ""), []*v1.Pod{asking("o", "cpu=4,memory=4Gi")}, "", ""},
		"exactly what is left": {
			node, asking("p", "cpu=1500m,memory=1Gi"), []*v1.Pod{asking("o", "cpu=2500m,memory=3Gi")}, "", "",
		},
		"a thousandth too much": {
			node, asking("p", "cpu=1501m"),
			[]*v1.Pod{asking("o", "cpu=2"), asking("q", "cpu=500m"), asking("r", "memory=1Gi")}[:2],
			full("cpu", "requested: 1501, used: 2500, capacity: 4000"), "cpu is requested by ns/o (2000), ns/q (500)",
		},
		"a byte too much": {
			node, asking("p", "memory=4294967297"), nil,
			full("memory", "requested: 4294967297, used: 0, capacity: 4294967296"),
			"no pod of this node can request more memory than 4294967296",
		},
		"storage": {
			node, asking("p", "ephemeral-storage=6Gi"),
			[]*v1.Pod{asking("o", "ephemeral-storage=6Gi")},
			full("ephemeral-storage", "requested: 6442450944, used: 6442450944, capacity: 10737418240"), "ns/o",
		},
		"storage of an init container": {
			node, asking("p", "init ephemeral-storage=6Gi"),
			[]*v1.Pod{asking("o", "ephemeral-storage=6Gi")},
			full("ephemeral-storage", "requested: 6442450944, used: 6442450944, capacity: 10737418240"), "ns/o",
		},
		"huge pages": {
			node, asking("p", "hugepages-2Mi=6Mi"),
			[]*v1.Pod{asking("o", "hugepages-2Mi=4Mi")},
			full("hugepages-2Mi", "requested: 6291456, used: 4194304, capacity: 8388608"), "ns/o",
		},
		"unknown huge pages": {
			node, asking("p", "hugepages-1Gi=1Gi"), nil,
			full("hugepages-1Gi", "requested: 1073741824, used: 0, capacity: 0"), "",
		},
		"extended": {
			node, asking("p", "example.com/gpu=2"),
			[]*v1.Pod{asking("o", "example.com/gpu=1")},
			full("example.com/gpu", "requested: 2, used: 1, capacity: 2"), "ns/o (1)",
		},
		"extended, and the node has none of it": {node, asking("p", "example.com/fpga=2"), nil, "", ""},
		"cpu is asked about before memory": {
			node, asking("p", "example.com/gpu=9,memory=9Gi,cpu=9"), nil,
			full("cpu", "requested: 9000, used: 0, capacity: 4000"), "",
		},
		"each that is short is told": {
			node, asking("p", "ephemeral-storage=11Gi,memory=5Gi,cpu=9"), nil,
			full("cpu", "requested: 9000, used: 0, capacity: 4000"),
			"no pod of this node can request more cpu than 4000; also OutOfmemory: Node didn't have enough resource: " +
				"memory, requested: 5368709120, used: 0, capacity: 4294967296 " +
				"(no pod of this node can request more memory than 4294967296); also OutOfephemeral-storage: Node " +
				"didn't have enough resource: ephemeral-storage, " +
				"requested: 11811160064, used: 0, capacity: 10737418240 (no pod of this node can request more " +
				"ephemeral-storage than 10737418240)",
		},
		"memory before the others": {
			node, asking("p", "example.com/gpu=9,hugepages-2Mi=9Gi,memory=9Gi"), nil,
			full("memory", "requested: 9663676416, used: 0, capacity: 4294967296"), "",
		},
		"pods before all": {
			node, asking("p", "cpu=9"),
			[]*v1.Pod{asking("a"), asking("b"), asking("c")},
			full("pods", "requested: 1, used: 3, capacity: 3"), "",
		},
		"containers add up": {
			node, asking("p", "cpu=2", "cpu=2", "cpu=1m"), nil, full("cpu", "requested: 4001, used: 0, capacity: 4000"),
			"",
		},
		"init containers do not": {node, asking("p", "init cpu=4", "init cpu=4", "cpu=4"), nil, "", ""},
		"the largest init container counts": {
			node, asking("p", "init cpu=5", "cpu=1"), nil, full("cpu", "requested: 5000, used: 0, capacity: 4000"), "",
		},
		"sidecars add up": {
			node, asking("p", "sidecar cpu=3", "cpu=2"), nil, full("cpu", "requested: 5000, used: 0, capacity: 4000"),
			"",
		},
		"overhead": {
			node, asking("p", "cpu=4", "overhead cpu=1m"), nil, full("cpu", "requested: 4001, used: 0, capacity: 4000"),
			"",
		},
		"the pod as a whole": {
			node, asking("p", "cpu=1", "pod cpu=5"), nil, full("cpu", "requested: 5000, used: 0, capacity: 4000"), "",
		},
		"the pod as a whole, of others": {
			node, asking("p", "cpu=1"),
			[]*v1.Pod{asking("o", "cpu=1", "pod cpu=3500m")},
			full("cpu", "requested: 1000, used: 3500, capacity: 4000"), "",
		},
		"others have more than there is": {
			node, asking("p", "cpu=1m"),
			[]*v1.Pod{asking("o", "cpu=9")},
			full("cpu", "requested: 1, used: 9000, capacity: 4000"), "",
		},
		"nobody says what the node has": {"", asking("p", "cpu=99"), nil, "", ""},
		"many others": {
			"cpu=4,pods=9", asking("p", "cpu=1"),
			[]*v1.Pod{
				asking("a", "cpu=500m"), asking("b", "cpu=500m"), asking("c", "cpu=1"), asking("d", "cpu=1"),
				asking("e", "cpu=500m"),
			},
			full("cpu", "requested: 1000, used: 3500, capacity: 4000"),
			"cpu is requested by ns/c (1000), ns/d (1000), ns/a (500) and 2 more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Pod: c.pod, Others: c.others}
			if c.node != "" {
				in.Allocatable = amounts(c.node)
			}
			got, detail := "", ""
			if r := Check(in); r != nil {
				got, detail = r.Reason+": "+r.Message, r.Detail
			}
			if got != c.want || !strings.Contains(detail, c.detail) {
				t.Errorf("got %q, %q", got, detail)
			}
		})
	}
}
