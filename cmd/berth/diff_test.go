package main

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/source"
)

func TestDiffPod(t *testing.T) {
	const text = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  runtimeClassName: heavy
  containers: [{name: main, image: IMAGE, resources: {limits: {cpu: CPU}}}]
`
	pod := func(image, cpu string) *v1.Pod {
		items := source.Decoder{NodeName: "n"}.Decode("/m/web.yaml",
			[]byte(strings.NewReplacer("IMAGE", image, "CPU", cpu).Replace(text)))
		if len(items) != 1 || items[0].Pod == nil {
			t.Fatalf("%+v", items)
		}
		return items[0].Pod
	}
	running := pod("a", "1")
	// The value from its RuntimeClass.
	running.Spec.Overhead = v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m")}
	running.Status.Phase = v1.PodRunning
	ended := running.DeepCopy()
	ended.Status.Phase = v1.PodSucceeded
	for name, c := range map[string]struct {
		wanted  *v1.Pod
		have    []v1.Pod
		resizes bool
		want    string
	}{
		"new":      {pod("a", "1"), nil, true, "pod default/web-n: is new and would be started\n"},
		"the same": {pod("a", "1"), []v1.Pod{*running}, true, "pod default/web-n: does not change\n"},
		"resized": {
			pod("a", "2"),
			[]v1.Pod{*running},
			true,
			"would be resized in place:\n  spec.containers[0].resources.limits.cpu: \"1\" -> \"2\"\n",
		},
		"not resized": {
			pod("a", "2"),
			[]v1.Pod{*running},
			false,
			"would be stopped (within 30s) and started anew:\n  spec.containers[0].resources.limits.cpu: \"1\" -> " +
				"\"2\"\n",
		},
		"one that has ended":  {pod("a", "2"), []v1.Pod{*ended}, true, "would be stopped"},
		"resized and changed": {pod("b", "2"), []v1.Pod{*running}, true, "would be stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			diffPod(&out, c.wanted, c.have, c.resizes)
			if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "overhead") {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
}
