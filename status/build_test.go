package status

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// The tests' clock: whole seconds after epoch.
var epoch = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

func at(seconds int) metav1.Time {
	return metav1.NewTime(epoch.Add(time.Duration(seconds) * time.Second))
}

func nanos(seconds int) int64 { return at(seconds).UnixNano() }

func ptr[T any](v T) *T { return &v }

// Pods.

type podOption func(*v1.Pod)

func newPod(options ...podOption) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u", Generation: 1},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways},
	}
	for _, o := range options {
		o(pod)
	}
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []v1.Container{{Name: "main", Image: "img"}}
	}
	return pod
}

func policy(p v1.RestartPolicy) podOption { return func(pod *v1.Pod) { pod.Spec.RestartPolicy = p } }

func static(pod *v1.Pod) {
	pod.Annotations = map[string]string{pods.AnnotationSource: "file"}
}

func regular(names ...string) podOption {
	return func(pod *v1.Pod) {
		for _, n := range names {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: n, Image: "img"})
		}
	}
}

func container(c v1.Container) podOption {
	return func(pod *v1.Pod) { pod.Spec.Containers = append(pod.Spec.Containers, c) }
}

func inits(names ...string) podOption {
	return func(pod *v1.Pod) {
		for _, n := range names {
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{Name: n, Image: "img"})
		}
	}
}

func sidecar(name string) podOption {
	return func(pod *v1.Pod) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, v1.Container{
			Name: name, Image: "img", RestartPolicy: ptr(v1.ContainerRestartPolicyAlways),
		})
	}
}

// Runtime facts. Every attempt of container c has the id c-ATTEMPT.

func attemptOf(name string, attempt uint32, created int) *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id:        containerRuntimeID(name, attempt),
		Metadata:  &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		State:     runtimeapi.ContainerState_CONTAINER_CREATED,
		CreatedAt: nanos(created),
		Image:     &runtimeapi.ImageSpec{Image: "img"},
		ImageRef:  "img@sha256:1",
		ImageId:   "sha256:2",
	}
}

func containerRuntimeID(name string, attempt uint32) string {
	return name + "-" + string(rune('0'+attempt))
}

func running(name string, attempt uint32, since int) *runtimeapi.ContainerStatus {
	c := attemptOf(name, attempt, since)
	c.State, c.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, nanos(since)
	return c
}

func exited(name string, attempt uint32, since int, code int32) *runtimeapi.ContainerStatus {
	c := running(name, attempt, since)
	c.State, c.FinishedAt, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, nanos(since+1), code
	c.Reason = "Completed"
	if code != 0 {
		c.Reason = "Error"
	}
	return c
}

func lost(name string, attempt uint32, since int) *runtimeapi.ContainerStatus {
	c := attemptOf(name, attempt, since)
	c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	return c
}

func sandbox(created int) *runtimeapi.PodSandboxStatus {
	return &runtimeapi.PodSandboxStatus{
		Id: "s", State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: nanos(created),
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.1.0.5"},
	}
}

func stopped(s *runtimeapi.PodSandboxStatus) *runtimeapi.PodSandboxStatus {
	s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	return s
}

func facts(containers ...*runtimeapi.ContainerStatus) []*runtimeapi.ContainerStatus {
	return containers
}
