package status

import v1 "k8s.io/api/core/v1"

// Restarts reports whether the named container of a pod is started again after it ended with exitCode, as long as the pod goes on. Of a pod whose spec is not
// known nothing is.
func Restarts(pod *v1.Pod, name string, exitCode int32) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name {
			return isSidecar(c) || exitCode != 0 && restartsAfter(c, pod.Spec.RestartPolicy, exitCode)
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return (c.RestartPolicy != nil || pod.Spec.RestartPolicy != "") && restartsAfter(c, pod.Spec.RestartPolicy, exitCode)
		}
	}
	return false
}
