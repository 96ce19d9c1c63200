package admit

import (
	"maps"
	"os"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/internal/pods"
)

// admission is a case of testdata/cases.yaml.
type admission struct {
	Name string `json:"name"`
	// Anywhere says that the pod is also given to a real kubelet: see package test/cluster.
	Anywhere bool     `json:"anywhere"`
	Node     caseNode `json:"node"`
	Static   bool     `json:"static"`
	Pod      v1.Pod   `json:"pod"`
	Others   []v1.Pod `json:"others"`
	Later    bool     `json:"later"`
	Reason   string   `json:"reason"`
	Message  string   `json:"message"`
}

// caseNode is what a case's node has other than the usual.
type caseNode struct {
	Pressures      []v1.NodeConditionType `json:"pressures"`
	Kernel         string                 `json:"kernel"`
	UnsafeSysctls  []string               `json:"unsafeSysctls"`
	Taints         []v1.Taint             `json:"taints"`
	CompareTaints  bool                   `json:"compareTaints"`
	AppArmor       bool                   `json:"appArmor"`
	NoStrictGroups bool                   `json:"noStrictGroups"`
	Declared       *[]string              `json:"declared"`
	ShuttingDown   bool                   `json:"shuttingDown"`
	Allocatable    v1.ResourceList        `json:"allocatable"`
}

// input returns what the rules get to read.
func (c *admission) input(t *testing.T) Input {
	t.Helper()
	kernel := c.Node.Kernel
	if kernel == "" {
		kernel = "6.1.0"
	}
	sysctls, err := NewSysctls(kernel, c.Node.UnsafeSysctls)
	if err != nil {
		t.Fatal(err)
	}
	in := Input{
		Pod:     &c.Pod,
		FromAPI: !c.Static,
		Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi"),
			v1.ResourceEphemeralStorage: resource.MustParse("10Gi"), v1.ResourcePods: resource.MustParse("10"),
			"hugepages-2Mi": resource.MustParse("64Mi"), "example.com/gpu": resource.MustParse("2"),
		},
		Node: Node{
			Name: "box",
			Labels: map[string]string{
				v1.LabelOSStable: "linux", v1.LabelHostname: "box", "disk": "ssd", "cores": "4",
			},
			Taints: c.Node.Taints, TaintComparison: c.Node.CompareTaints, AppArmor: c.Node.AppArmor,
			NoStrictGroups: c.Node.NoStrictGroups, Sysctls: sysctls, Pressures: c.Node.Pressures,
			ShuttingDown: c.Node.ShuttingDown,
		},
	}
	maps.Copy(in.Allocatable, c.Node.Allocatable)
	source := pods.SourceAPI
	if c.Static {
		source = pods.SourceFile
	}
	if c.Pod.Annotations == nil {
		c.Pod.Annotations = map[string]string{}
	}
	c.Pod.Annotations[pods.AnnotationSource] = source
	for i := range c.Others {
		in.Others = append(in.Others, &c.Others[i])
	}
	if c.Node.Declared != nil {
		if in.Node.Declared, err = NewDeclared(*c.Node.Declared, "v1.36.3"); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// TestCases checks the answers of admission word for word; the words are a kubelet's.
func TestCases(t *testing.T) {
	text, err := os.ReadFile("testdata/cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []admission
	if err := yaml.UnmarshalStrict(text, &cases); err != nil {
		t.Fatal(err)
	}
	compared := 0
	for i := range cases {
		c := &cases[i]
		if c.Anywhere {
			compared++
		}
		t.Run(c.Name, func(t *testing.T) {
			var got Rejection
			if r := Check(c.input(t)); r != nil {
				got = *r
			}
			if got.Reason != c.Reason || got.Message != c.Message || got.Later != c.Later {
				t.Errorf("%q %q, later %v\nwant %q %q, later %v", got.Reason, got.Message, got.Later, c.Reason, c.Message,
					c.Later)
			}
		})
	}
	if len(cases) < 100 || compared < 40 {
		t.Errorf("%d cases, %d of them for a kubelet, too: the file is not whole", len(cases), compared)
	}
}
