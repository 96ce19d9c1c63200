package pods

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOrigin(t *testing.T) {
	for _, c := range []struct {
		annotations             map[string]string
		fromAPI, static, mirror bool
	}{
		{nil, false, false, false},
		{map[string]string{AnnotationSource: SourceFile}, false, true, false},
		{map[string]string{AnnotationSource: SourceHTTP}, false, true, false},
		{map[string]string{AnnotationSource: SourceAPI}, true, false, false},
		{map[string]string{AnnotationSource: SourceAPI, v1.MirrorPodAnnotationKey: ""}, true, false, true},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}}
		if FromAPI(pod) != c.fromAPI || Static(pod) != c.static || Mirror(pod) != c.mirror {
			t.Errorf("%v: FromAPI %t, Static %t, Mirror %t", c.annotations, FromAPI(pod), Static(pod), Mirror(pod))
		}
	}
}

func TestSidecar(t *testing.T) {
	always, never := v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyNever
	for policy, want := range map[*v1.ContainerRestartPolicy]bool{nil: false, &always: true, &never: false} {
		if got := Sidecar(&v1.Container{RestartPolicy: policy}); got != want {
			t.Errorf("policy %v: %t", policy, got)
		}
	}
}

func TestTerminal(t *testing.T) {
	for phase, want := range map[v1.PodPhase]bool{
		v1.PodPending:   false,
		v1.PodRunning:   false,
		v1.PodUnknown:   false,
		"":              false,
		v1.PodSucceeded: true,
		v1.PodFailed:    true,
	} {
		if Terminal(phase) != want {
			t.Errorf("phase %q: %t", phase, !want)
		}
	}
}

func TestPriority(t *testing.T) {
	number := int32(7)
	for _, c := range []struct {
		number *int32
		class  string
		want   int32
	}{
		{nil, "", 0},
		{&number, "system-node-critical", 7},
		{nil, "system-node-critical", 2_000_001_000},
		{nil, "system-cluster-critical", 2_000_000_000},
		{nil, "of-somebody", 0},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{Priority: c.number, PriorityClassName: c.class}}
		if got := Priority(pod); got != c.want {
			t.Errorf("class %q: %d, want %d", c.class, got, c.want)
		}
	}
}

func TestIsCritical(t *testing.T) {
	high, low := Critical, Critical-1
	for name, c := range map[string]struct {
		annotations map[string]string
		priority    *int32
		want        bool
	}{
		"static":           {map[string]string{AnnotationSource: SourceFile}, nil, true},
		"mirror":           {map[string]string{AnnotationSource: SourceAPI, v1.MirrorPodAnnotationKey: ""}, nil, true},
		"plain":            {map[string]string{AnnotationSource: SourceAPI}, nil, false},
		"critical":         {map[string]string{AnnotationSource: SourceAPI}, &high, true},
		"nearly critical":  {map[string]string{AnnotationSource: SourceAPI}, &low, false},
		"of nobody's kind": {nil, nil, false},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: c.annotations}, Spec: v1.PodSpec{Priority: c.priority}}
		if got := IsCritical(pod); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
