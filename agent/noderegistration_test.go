package agent

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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

// A pod that is bound for a label of which the node has not heard yet runs.
func TestLabelsThatTheNodeHasNotHeardOfCount(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		j.api.Fail(func(r *http.Request) *apifake.Fault {
			if strings.HasSuffix(r.URL.Path, "/nodes") {
				return &apifake.Fault{Code: http.StatusServiceUnavailable} // no list and no watch
			}
			return nil
		})
		j.api.BreakWatches()
		time.Sleep(5 * time.Second)
		node := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
		node.Labels["zone"] = "a"
		j.api.Put(apifake.Nodes, node)
		j.bind("a", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "a"} })
		j.bind("b", func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} })
		time.Sleep(time.Minute)
		j.wantRuns("labelled a moment ago", "a Running, b Failed")
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

// setCards sets, as a user does, how many cards the Node object has.
func (j *joined) setCards(n string) {
	j.t.Helper()
	node, ok := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
	if !ok {
		j.t.Fatal("there is no Node")
	}
	node.Status.Capacity["example.com/card"] = resource.MustParse(n)
	node.Status.Allocatable["example.com/card"] = resource.MustParse(n)
	j.api.Put(apifake.Nodes, node)
	time.Sleep(5 * time.Second)
}

// bindCard binds a pod that wants a card, and returns its phase and reason after a while.
func (j *joined) bindCard(name string) string {
	list := v1.ResourceList{"example.com/card": resource.MustParse("1")}
	j.bind(name, func(p *v1.Pod) {
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
	})
	time.Sleep(5 * time.Second)
	s := j.api.Pod("ns", name).Status
	return strings.TrimSpace(string(s.Phase) + " " + s.Reason)
}

// Pods get no more of an extended resource than the Node object has, whoever set it there. A
// resource that it lacks is no matter of the node.
func TestExtendedResourcesOfTheNodeObjectCount(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		if got := j.bindCard("unknown"); got != "Running" {
			t.Errorf("of a resource that the node never had: %s", got)
		}
		j.setCards("2")
		for _, c := range [][2]string{{"second", "Running"}, {"third", "Failed OutOfexample.com/card"}} {
			if got := j.bindCard(c[0]); got != c[1] {
				t.Errorf("%s: %s, want %s", c[0], got, c[1])
			}
		}
	})
}

// A machine that is set up anew under its name has none of the extended resources that it had. A
// restart of the agent changes nothing.
func TestExtendedResourcesOfAMachineSetUpAnew(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		j.setCards("2")
		j.end()
		j.start()
		time.Sleep(5 * time.Second)
		if got := j.bindCard("restarted"); got != "Running" {
			t.Errorf("after a restart: %s", got)
		}
		j.end()
		if err := os.Remove(filepath.Join(j.dir, "root", "device-plugins", "kubelet_internal_checkpoint")); err != nil {
			t.Fatal(err)
		}
		j.start()
		time.Sleep(5 * time.Second)
		if got := j.bindCard("anew"); got != "Failed OutOfexample.com/card" {
			t.Errorf("after the machine was set up anew: %s", got)
		}
	})
}
