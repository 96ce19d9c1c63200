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
