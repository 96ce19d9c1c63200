package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	apifake "github.com/berthd/berth/agent/cluster/fake"
)

func TestNodeImages(t *testing.T) {
	images := []*runtimeapi.Image{
		{Size: 1, RepoTags: []string{"small:1"}},
		{Size: 9, RepoDigests: []string{"big@a", "big@b"}, RepoTags: []string{"big:1", "big:2", "big:3", "big:4"}},
		{Size: 5, RepoTags: []string{"b"}},
		{Size: 5, RepoTags: []string{"a"}},
	}
	for most, want := range map[int]string{
		0: "[]", 1: "[{[big@a big@b big:1 big:2 big:3] 9}]", 3: "[{[big@a big@b big:1 big:2 big:3] 9} {[a] 5} {[b] 5}]",
		-1: "[{[big@a big@b big:1 big:2 big:3] 9} {[a] 5} {[b] 5} {[small:1] 1}]",
	} {
		if got := fmt.Sprint(nodeImages(images, most)); got != want {
			t.Errorf("at most %d: %s, want %s", most, got, want)
		}
	}
}

func TestRuntimeFaults(t *testing.T) {
	got := runtimeFaults([]*runtimeapi.RuntimeCondition{
		{Type: "ContainerdHasNoDeprecationWarnings", Reason: "ContainerdHasDeprecationWarnings"}, // no reason to keep pods away
		{Type: "NetworkReady", Reason: "NetworkPluginNotReady", Message: "cni plugin not initialized"},
		{Type: "RuntimeReady", Status: true},
	})
	if want := "[container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if got := runtimeFaults([]*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: true}}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestRuntimeHandlersOfANode(t *testing.T) {
	got := runtimeHandlers([]*runtimeapi.RuntimeHandler{
		{Name: "runc", Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}, {Name: ""},
	})
	if len(got) != 2 || got[0].Name != "" || *got[0].Features.UserNamespaces || !*got[1].Features.UserNamespaces || *got[1].Features.RecursiveReadOnlyMounts {
		t.Errorf("%+v", got)
	}
}

func TestAgentRegistersItsNode(t *testing.T) {
	join(t, "", func(t *testing.T, j *joined) {
		time.Sleep(5 * time.Second)
		node, ok := j.api.Get(apifake.Nodes, "", "node").(*v1.Node)
		if !ok {
			t.Fatal("there is no Node")
		}
		s := node.Status
		if !strings.Contains(s.NodeInfo.KubeletVersion, "+berth") || s.NodeInfo.KernelVersion == "" || s.NodeInfo.BootID == "" || s.NodeInfo.OSImage == "" ||
			!strings.Contains(s.NodeInfo.ContainerRuntimeVersion, "://") || s.Capacity.Cpu().IsZero() || s.Allocatable.Memory().IsZero() || len(s.Addresses) < 2 {
			t.Errorf("status %+v", s)
		}
		if got := strings.Join(s.DeclaredFeatures, ","); got != "InPlacePodLevelResourcesVerticalScaling,InPlacePodVerticalScalingInitContainers,RestartAllContainersOnContainerExits" {
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
