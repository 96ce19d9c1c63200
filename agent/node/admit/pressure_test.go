package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/internal/pods"
)

func TestEnoughLeft(t *testing.T) {
	memory, disk := []v1.NodeConditionType{v1.NodeMemoryPressure}, []v1.NodeConditionType{v1.NodeDiskPressure}
	both := []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure}
	pod := func(change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{pods.AnnotationSource: pods.SourceAPI}},
			Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
		}
		change(p)
		return p
	}
	plain := pod(func(*v1.Pod) {})
	burstable := pod(func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceMemory: resource.MustParse("1Mi")}
	})
	tolerant := pod(func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists}}
	})
	other := pod(func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}}
	})
	static := pod(func(p *v1.Pod) { p.Annotations[pods.AnnotationSource] = pods.SourceFile })
	critical := pod(func(p *v1.Pod) { p.Spec.PriorityClassName = "system-cluster-critical" })
	for name, c := range map[string]struct {
		pod     *v1.Pod
		lacks   []v1.NodeConditionType
		message string
	}{
		"enough":                             {plain, nil, ""},
		"BestEffort, short of memory":        {plain, memory, "The node had condition: [MemoryPressure]. "},
		"Burstable, short of memory":         {burstable, memory, ""},
		"tolerant, short of memory":          {tolerant, memory, ""},
		"tolerant of another":                {other, memory, "The node had condition: [MemoryPressure]. "},
		"BestEffort, short of disk":          {plain, disk, "The node had condition: [DiskPressure]. "},
		"Burstable, short of disk":           {burstable, disk, "The node had condition: [DiskPressure]. "},
		"tolerant, short of both":            {tolerant, both, "The node had condition: [DiskPressure MemoryPressure]. "},
		"static":                             {static, both, ""},
		"critical":                           {critical, both, ""},
		"tolerant of the one that is lacked": {other, disk, "The node had condition: [DiskPressure]. "},
	} {
		got := Check(Input{Pod: c.pod, FromAPI: true, Node: Node{Pressures: c.lacks}})
		switch {
		case c.message == "" && got != nil:
			t.Errorf("%s: %+v", name, got)
		case c.message != "" && (got == nil || got.Reason != "Evicted" || got.Message != c.message):
			t.Errorf("%s: %+v, want %q", name, got, c.message)
		}
	}
}
