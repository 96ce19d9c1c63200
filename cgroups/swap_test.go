package cgroups

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/internal/pods"
)

// The rules are those of KEP-2400 and kubelet 1.36.
func TestLimitedSwap(t *testing.T) {
	const capacity = 8 << 30
	limited := Options{Version: V2, SwapAccounting: true, Swap: 4 << 30}
	inCluster := limited
	inCluster.StaticCritical = true
	static := func(p *corev1.Pod) {
		p.Annotations = map[string]string{pods.AnnotationSource: pods.SourceFile}
	}
	burstable := podOf(container(list{"memory": "1Gi"}, list{"memory": "2Gi"}))
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		change  func(*corev1.Pod)
		options Options
		want    string
	}{
		"a share": {pod: burstable, options: limited, want: "536870912"},
		"without a limit": {
			pod: podOf(container(list{"memory": "2Gi"}, nil)), options: limited, want: "1073741824",
		},
		"no swap":             {pod: burstable, options: Options{Version: V2, SwapAccounting: true}, want: "0"},
		"swap is not counted": {pod: burstable, options: Options{Version: V2, Swap: 1}, want: ""},
		"BestEffort":          {pod: podOf(container(nil, nil)), options: limited, want: "0"},
		"the request is the limit": {
			pod: podOf(container(list{"memory": "1Gi"}, list{"memory": "1Gi"})), options: limited, want: "0",
		},
		"cpu alone":              {pod: podOf(container(list{"cpu": "1"}, nil)), options: limited, want: "0"},
		"more than the node has": {pod: podOf(container(list{"memory": "9Gi"}, nil)), options: limited, want: "0"},
		"critical": {
			pod: burstable, options: limited, want: "0",
			change: func(p *corev1.Pod) { p.Spec.Priority = ptr.To(pods.Critical) },
		},
		"static, on a node of a cluster": {pod: burstable, change: static, options: inCluster, want: "0"},
		"static, without a cluster":      {pod: burstable, change: static, options: limited, want: "536870912"},
		"of the API server":              {pod: burstable, options: inCluster, want: "536870912"},
	} {
		pod := c.pod.DeepCopy()
		pod.Annotations = map[string]string{pods.AnnotationSource: pods.SourceAPI}
		if c.change != nil {
			c.change(pod)
		}
		r := ContainerResources(pod, &pod.Spec.Containers[0], capacity, c.options)
		if got := r.GetUnified()["memory.swap.max"]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	v1 := limited
	v1.Version = V1
	if r := ContainerResources(burstable, &burstable.Spec.Containers[0], capacity, v1); r.GetMemorySwapLimitInBytes() !=
		2<<30 || r.GetUnified()["memory.swap.max"] != "" {
		t.Errorf("on v1: %+v", r)
	}
}
