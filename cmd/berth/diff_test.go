package main

import (
	"cmp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
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
	decoded := func(file, image, cpu string) *v1.Pod {
		items := source.Decoder{NodeName: "n"}.Decode(file,
			[]byte(strings.NewReplacer("IMAGE", image, "CPU", cpu).Replace(text)))
		if len(items) != 1 || items[0].Pod == nil {
			t.Fatalf("%+v", items)
		}
		return items[0].Pod
	}
	pod := func(image, cpu string) *v1.Pod { return decoded("/m/web.yaml", image, cpu) }
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
		file    string
		results []api.Manifest
	}{
		"new": {wanted: pod("a", "1"), resizes: true, want: "pod default/web-n: is new and would be started\n"},
		"the same": {
			wanted: pod("a", "1"), have: []v1.Pod{*running}, resizes: true, want: "pod default/web-n: does not change\n",
		},
		"resized": {
			wanted:  pod("a", "2"),
			have:    []v1.Pod{*running},
			resizes: true,
			want:    "would be resized in place:\n  spec.containers[0].resources.limits.cpu: \"1\" -> \"2\"\n",
		},
		"not resized": {
			wanted: pod("a", "2"),
			have:   []v1.Pod{*running},
			want: "would be stopped (within 30s) and started anew:\n  spec.containers[0].resources.limits.cpu: \"1\" -> " +
				"\"2\"\n",
		},
		"renamed": {
			wanted: decoded("/m/other.yaml", "a", "1"), have: []v1.Pod{*running}, file: "/m/other.yaml", resizes: true,
			results: []api.Manifest{{File: "/m/web.yaml", Kind: "Pod", Namespace: "default", Name: "web-n", Accepted: true}},
			want: "pod default/web-n: would be stopped (within 30s) and started anew: its manifest would be " +
				"/m/other.yaml and not /m/web.yaml, and the path of the file is part of the UID, as in a kubelet",
		},
		"renamed, and read already": {
			wanted: decoded("/m/other.yaml", "a", "1"), have: []v1.Pod{*running}, file: "/m/other.yaml",
			want: "started anew: its UID changes, which is a hash over the manifest and the path of its file",
		},
		"standard input": {
			wanted: decoded(source.Stdin, "a", "1"), have: []v1.Pod{*running}, file: source.Stdin, want: "does not change",
		},
		"one that has ended":  {wanted: pod("a", "2"), have: []v1.Pod{*ended}, resizes: true, want: "would be stopped"},
		"resized and changed": {wanted: pod("b", "2"), have: []v1.Pod{*running}, resizes: true, want: "would be stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			d := &differ{pods: c.have, settings: client.Settings{Resizes: c.resizes}, results: c.results}
			change := d.compare(c.wanted, cmp.Or(c.file, "/m/web.yaml"))
			change.write(&out, "default/web-n")
			stays := strings.Contains(c.want, "does not change") || strings.Contains(c.want, "resized")
			if change.starts == stays {
				t.Errorf("starts is %t", change.starts)
			}
			if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "overhead") {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
}
