package steps

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/pod/generate"
)

// A container is made with the CPUs and the NUMA nodes that it was given, and else with all.
func TestWithGiven(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main"}}}}
	for _, given := range []allocation.Given{{}, {CPUs: "1,3", MemoryNodes: "0,1"}} {
		config, err := withGiven(given, generate.ContainerInput{
			Pod: pod, Container: &pod.Spec.Containers[0], Resources: &runtimeapi.LinuxContainerResources{},
		})
		if err != nil {
			t.Fatal(err)
		}
		has := config.GetLinux().GetResources()
		if has.GetCpusetCpus() != given.CPUs || has.GetCpusetMems() != given.MemoryNodes {
			t.Errorf("%+v: CPUs %q, memory %q", given, has.GetCpusetCpus(), has.GetCpusetMems())
		}
	}
}
