// Package runtimeclass gives pods what their RuntimeClass says.
//
// Purpose: pods of manifests get what the API server's admission of RuntimeClasses gives to a pod
// that it creates. The sandbox's overhead, and the labels that a node needs, become part of the
// pod. [Apply] does that. The handler that runs the pod is looked up when its sandbox is made.
//
// Truth owned: none; package objects has the RuntimeClasses.
//
// Concurrency: pure functions.
package runtimeclass

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// Conflict is the error of a pod that contradicts its RuntimeClass, in the API server's words.
type Conflict struct{ Message string }

// Error returns the message.
func (c *Conflict) Error() string { return c.Message }

// Name returns the name of the pod's RuntimeClass, empty if it has none.
func Name(pod *v1.Pod) string {
	if pod.Spec.RuntimeClassName == nil {
		return ""
	}
	return *pod.Spec.RuntimeClassName
}

// NotFound returns the error for a RuntimeClass that does not exist.
func NotFound(name string) error { return fmt.Errorf("RuntimeClass %q not found", name) }

// Apply returns the pod with its RuntimeClass's overhead, node selector and tolerations. It returns
// the same pointer if they change nothing. The pod is not modified. The error is a [*Conflict].
func Apply(pod *v1.Pod, class *nodev1.RuntimeClass) (*v1.Pod, error) {
	out := *pod
	var overhead v1.ResourceList
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	switch {
	case class.Overhead == nil && pod.Spec.Overhead != nil:
		return nil, &Conflict{"Pod Overhead set without corresponding RuntimeClass defined Overhead"}
	case class.Overhead == nil:
	case len(pod.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(pod.Spec.Overhead, overhead):
		return nil, &Conflict{"Pod's Overhead doesn't match RuntimeClass's defined Overhead"}
	default:
		out.Spec.Overhead = overhead
	}
	if s := class.Scheduling; s != nil {
		selector, err := merge(pod.Spec.NodeSelector, s.NodeSelector)
		if err != nil {
			return nil, err
		}
		out.Spec.NodeSelector, out.Spec.Tolerations = selector, add(pod.Spec.Tolerations, s.Tolerations)
	}
	if equality.Semantic.DeepEqual(out.Spec, pod.Spec) {
		return pod, nil
	}
	return &out, nil
}

// merge adds the class's node selector to the pod's.
func merge(pod, class map[string]string) (map[string]string, error) {
	if len(class) == 0 {
		return pod, nil
	}
	out := maps.Clone(pod)
	if out == nil {
		out = map[string]string{}
	}
	for _, key := range slices.Sorted(maps.Keys(class)) {
		if have, ok := pod[key]; ok && have != class[key] {
			return nil, &Conflict{
				fmt.Sprintf("conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s",
					key, class[key], key, have),
			}
		}
		out[key] = class[key]
	}
	return out, nil
}

// add adds the class's tolerations that the pod does not have.
func add(pod, class []v1.Toleration) []v1.Toleration {
	out := slices.Clip(pod)
	for _, t := range class {
		if !slices.ContainsFunc(out, func(o v1.Toleration) bool { return equality.Semantic.DeepEqual(o, t) }) {
			out = append(out, t)
		}
	}
	return out
}

// Keep returns pod with what its RuntimeClass gave it when it was admitted; before is the pod as it
// was admitted. So a class that changes or goes away changes no admitted pod. If the two do not
// name the same class, Keep returns pod.
func Keep(pod, before *v1.Pod) *v1.Pod {
	if Name(pod) == "" || Name(pod) != Name(before) {
		return pod
	}
	out := *pod
	out.Spec.Overhead, out.Spec.NodeSelector, out.Spec.Tolerations = before.Spec.Overhead, before.Spec.NodeSelector,
		before.Spec.Tolerations
	return &out
}
