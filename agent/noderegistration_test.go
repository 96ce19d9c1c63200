package agent

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	apifake "github.com/berthd/berth/agent/cluster/kube/fake"
)

func TestAgentRegistersItsNode(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		node, ok := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
		if !ok {
			t.Fatal("there is no Node")
		}
		s := node.Status
		if !strings.Contains(s.NodeInfo.KubeletVersion, "+berth") || s.NodeInfo.KernelVersion == "" ||
			s.NodeInfo.BootID == "" || s.NodeInfo.OSImage == "" ||
			!strings.Contains(s.NodeInfo.ContainerRuntimeVersion, "://") || s.Capacity.Cpu().IsZero() ||
			s.Allocatable.Memory().IsZero() || len(s.Addresses) < 2 {
			t.Errorf("status %+v", s)
		}
		if got := strings.Join(s.DeclaredFeatures,
			","); got != "InPlacePodLevelResourcesVerticalScaling,InPlacePodVerticalScalingInitContainers,"+
			"RestartAllContainersOnContainerExits" {
			t.Errorf("declared features %s", got)
		}
		for _, c := range s.Conditions {
			if c.Type == v1.NodeReady && c.Status != v1.ConditionTrue {
				t.Errorf("ready is %+v", c)
			}
		}
		if j.api.Get(apifake.Leases, v1.NamespaceNodeLease, "node") == nil {
			t.Error("there is no lease")
		}
	})
}

// Pods choose the node by the labels that it has in the API, whoever set them.
func TestLabelsOfTheNodeObjectCount(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		node := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
		node.Labels["zone"] = "a"
		j.api.Put(apifake.Nodes, node)
		time.Sleep(time.Second)
		j.bind("a", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} })
		time.Sleep(5 * time.Second)
		j.wantRuns("labelled by somebody", "a Running")
	})
}

// A NoExecute taint of the Node object refuses the pods of the API server that do not tolerate it.
func TestTaintsOfTheNodeObjectCount(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		node := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
		node.Spec.Taints = []v1.Taint{{Key: "closed", Effect: v1.TaintEffectNoExecute}}
		j.api.Put(apifake.Nodes, node)
		time.Sleep(time.Second)
		j.bind("a", func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "closed", Operator: v1.TolerationOpExists}}
		})
		j.bind("b")
		time.Sleep(5 * time.Second)
		j.wantRuns("tainted by somebody", "a Running, b Failed")
	})
}
