package status

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// attempts has the container statuses by container name, the newest attempt first. An attempt is
// one container that the runtime made for a container of the spec.
type attempts map[string][]*runtimeapi.ContainerStatus

// group sorts the runtime's containers by name and age.
func group(containers []*runtimeapi.ContainerStatus) attempts {
	byName := make(attempts, len(containers))
	for _, c := range containers {
		if c == nil {
			continue
		}
		name := c.GetMetadata().GetName()
		byName[name] = append(byName[name], c)
	}
	for _, list := range byName {
		slices.SortStableFunc(list, func(a, b *runtimeapi.ContainerStatus) int {
			return cmp.Or(
				cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()),
				cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), // the clock may have been put back
			)
		})
	}
	return byName
}

// newest returns the newest attempt of a container, or nil.
func (i attempts) newest(name string) *runtimeapi.ContainerStatus {
	if list := i[name]; len(list) > 0 {
		return list[0]
	}
	return nil
}

// anyRunning reports whether any attempt of any container runs.
func (i attempts) anyRunning() bool {
	for _, list := range i {
		for _, c := range list {
			if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
				return true
			}
		}
	}
	return false
}

// anyRegularCreated reports whether one of the pod's regular containers exists. That proves that
// the pod's init containers completed once.
func (i attempts) anyRegularCreated(pod *v1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		if s := i.newest(c.Name); s != nil && s.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			return true
		}
	}
	return false
}

// initializedIn reports whether one of the pod's regular containers was made in the current
// sandbox, as long as that is ready. That proves that the init containers completed in this
// sandbox.
func (i attempts) initializedIn(in *Input) bool {
	if in.Sandbox == nil || in.Sandbox.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return false
	}
	for _, c := range in.Pod.Spec.Containers {
		for _, s := range i[c.Name] {
			if !in.Earlier[s.GetId()] {
				return true
			}
		}
	}
	return false
}

// timeOf converts the CRI's nanoseconds since 1970 to the API's time.
func timeOf(nanoseconds int64) metav1.Time {
	return metav1.NewTime(time.Unix(0, nanoseconds))
}
