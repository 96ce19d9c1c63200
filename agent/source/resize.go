package source

import (
	"errors"
	"maps"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/berthd/berth/internal/pods"
)

// errOtherMetadata is the reason why an edit of labels or annotations makes another pod.
var errOtherMetadata = errors.New("its labels or annotations differ")

// errOtherSpec is the reason why an edit of any other field makes another pod.
var errOtherSpec = errors.New("only cpu and memory resources are mutable")

// Resizable returns nil if the pod to differs from the pod from only in cpu or memory, in a way
// that the API server allows for a running pod. The amounts may be those of containers or of the
// pod as a whole.
//
// The edit must not remove an amount, and the quality-of-service class must stay the same.
// Otherwise the error says why to is another pod. Resizable does not compare names and UIDs.
func Resizable(from, to *v1.Pod) error {
	if !maps.Equal(from.Labels, to.Labels) || !maps.Equal(pods.ManifestAnnotations(from), pods.ManifestAnnotations(to)) {
		return errOtherMetadata
	}
	if !equality.Semantic.DeepEqual(sizeless(from), sizeless(to)) {
		return errOtherSpec
	}
	before, err := internalSpec(from)
	if err != nil {
		return err
	}
	after, err := internalSpec(to)
	if err != nil {
		return err
	}
	return validation.ValidatePodResize(after, before, validationOptions()).ToAggregate()
}

// sizeless returns the pod's spec without its amounts of cpu and memory.
func sizeless(pod *v1.Pod) *v1.PodSpec {
	spec := pod.Spec.DeepCopy()
	without := func(list *v1.ResourceList) {
		delete(*list, v1.ResourceCPU)
		delete(*list, v1.ResourceMemory)
		if len(*list) == 0 {
			*list = nil
		}
	}
	for _, list := range [][]v1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			without(&list[i].Resources.Requests)
			without(&list[i].Resources.Limits)
		}
	}
	if r := spec.Resources; r != nil {
		without(&r.Requests)
		without(&r.Limits)
		if equality.Semantic.DeepEqual(*r, v1.ResourceRequirements{}) {
			spec.Resources = nil
		}
	}
	return spec
}

// internalSpec returns a pod in which only the spec matters. It removes what upstream's rules
// refuse and no kubelet refuses, because the rules check nothing more after such a field.
func internalSpec(pod *v1.Pod) (*core.Pod, error) {
	in := &v1.Pod{Spec: *pod.Spec.DeepCopy(), ObjectMeta: metav1.ObjectMeta{
		// An update of one object needs these.
		Name: pod.Name, Namespace: pod.Namespace, UID: "same", ResourceVersion: "1",
	}}
	for _, list := range [][]v1.Container{in.Spec.InitContainers, in.Spec.Containers} {
		for i := range list {
			if list[i].SecurityContext != nil {
				list[i].SecurityContext.Privileged = nil
			}
		}
	}
	out := &core.Pod{}
	return out, corev1.Convert_v1_Pod_To_core_Pod(in, out, nil)
}
