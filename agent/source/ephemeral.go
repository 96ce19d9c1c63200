package source

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
)

// WithEphemeral returns a copy of an accepted pod with one more ephemeral container, which gets the
// API's defaults. The error has upstream's text about what is wrong with the container.
func WithEphemeral(pod *v1.Pod, c *v1.EphemeralContainer) (*v1.Pod, error) {
	after := pod.DeepCopy()
	after.Spec.EphemeralContainers = append(after.Spec.EphemeralContainers, *c.DeepCopy())
	corev1.SetObjectDefaults_Pod(after)
	var before, wanted core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(pod.DeepCopy(), &before, nil); err != nil {
		return nil, fmt.Errorf("converting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	if err := corev1.Convert_v1_Pod_To_core_Pod(after.DeepCopy(), &wanted, nil); err != nil {
		return nil, fmt.Errorf("converting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	// An update needs a resource version; local pods have none.
	before.ResourceVersion, wanted.ResourceVersion = "1", "1"
	if errs := withoutPrivileged(validation.ValidatePodEphemeralContainersUpdate(&wanted, &before,
		validationOptions())); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return after, nil
}
