package runtimeclass

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func amounts(cpu, memory string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}
}

func TestApply(t *testing.T) {
	forever := v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}
	gpu := v1.Toleration{Key: "gpu", Operator: v1.TolerationOpExists}
	heavy := &nodev1.Overhead{PodFixed: amounts("250m", "120Mi")}
	for name, c := range map[string]struct {
		spec    v1.PodSpec
		class   nodev1.RuntimeClass
		want    v1.PodSpec
		same    bool
		problem string
	}{
		"nothing but a handler": {v1.PodSpec{}, nodev1.RuntimeClass{}, v1.PodSpec{}, true, ""},
		"overhead": {
			v1.PodSpec{},
			nodev1.RuntimeClass{Overhead: heavy},
			v1.PodSpec{Overhead: amounts("250m", "120Mi")},
			false,
			"",
		},
		"the same overhead": {
			v1.PodSpec{Overhead: amounts("0.25", "120Mi")},
			nodev1.RuntimeClass{Overhead: heavy},
			v1.PodSpec{Overhead: amounts("0.25", "120Mi")},
			true, "",
		},
		"another overhead": {
			v1.PodSpec{Overhead: amounts("1", "120Mi")},
			nodev1.RuntimeClass{Overhead: heavy},
			v1.PodSpec{},
			false,
			"Pod's Overhead doesn't match RuntimeClass's defined Overhead",
		},
		"overhead of its own": {
			v1.PodSpec{Overhead: amounts("1", "1Mi")},
			nodev1.RuntimeClass{},
			v1.PodSpec{},
			false,
			"Pod Overhead set without corresponding RuntimeClass defined Overhead",
		},
		"node selector": {
			v1.PodSpec{}, selecting("a", "b"), v1.PodSpec{NodeSelector: map[string]string{"a": "b"}}, false, "",
		},
		"node selectors": {
			v1.PodSpec{NodeSelector: map[string]string{"x": "y"}},
			selecting("a", "b"),
			v1.PodSpec{NodeSelector: map[string]string{"a": "b", "x": "y"}},
			false, "",
		},
		"the same node selector": {
			v1.PodSpec{NodeSelector: map[string]string{"a": "b"}},
			selecting("a", "b"),
			v1.PodSpec{NodeSelector: map[string]string{"a": "b"}},
			true, "",
		},
		"a node selector against": {
			v1.PodSpec{NodeSelector: map[string]string{"a": "c"}},
			selecting("a", "b"),
			v1.PodSpec{},
			false,
			"conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c",
		},
		"tolerations": {
			v1.PodSpec{Tolerations: []v1.Toleration{forever}},
			nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{Tolerations: []v1.Toleration{forever, gpu}}},
			v1.PodSpec{Tolerations: []v1.Toleration{forever, gpu}},
			false, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: c.spec}
			before := pod.DeepCopy()
			got, err := Apply(pod, &c.class)
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod was modified: %s", diff)
			}
			if c.problem != "" {
				var conflict *Conflict
				if !errors.As(err, &conflict) || !strings.Contains(err.Error(), c.problem) {
					t.Errorf("got %v, want %q", err, c.problem)
				}
				return
			}
			if err != nil || (got == pod) != c.same {
				t.Fatalf("%v, the same pod: %v", err, got == pod)
			}
			if diff := cmp.Diff(c.want, got.Spec); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if again, err := Apply(got, &c.class); err != nil || again != got {
				t.Errorf("applied twice, it changes again: %v", err)
			}
		})
	}
}

func selecting(key, value string) nodev1.RuntimeClass {
	return nodev1.RuntimeClass{Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{key: value}}}
}

func TestKeep(t *testing.T) {
	pod := func(class string) *v1.Pod { return &v1.Pod{Spec: v1.PodSpec{RuntimeClassName: ptr.To(class)}} }
	admitted := pod("a")
	admitted.Spec.Overhead = amounts("1", "1Mi")
	if got := Keep(pod("a"), admitted); !cmp.Equal(got.Spec, admitted.Spec) {
		t.Errorf("the overhead is lost: %+v", got.Spec)
	}
	for _, other := range []*v1.Pod{pod("b"), {}} {
		if got := Keep(other, admitted); got != other {
			t.Errorf("%v got the overhead of another class", other.Spec.RuntimeClassName)
		}
	}
}
