package status

import (
	v1 "k8s.io/api/core/v1"
)

// tally counts the pod's containers by what they mean for the phase.
type tally struct {
	initPending    int // init containers that have not ended yet
	sidecarPending int // sidecars that have not started yet
	initFailed     int // init containers that failed for good

	unknown, waiting, running int
	stopped                   int // regular containers that ended, restarting or not
	stoppedForGood            int // of these, the ones that will not be started again
	succeeded                 int // of these, the ones that ended now with exit code 0
}

// podPhase is the phase that the container statuses say. initialized says that regular containers exist in the current sandbox; ended that
// the pod was taken down, after which nothing restarts, whatever the restart policy.
func podPhase(pod *v1.Pod, s *v1.PodStatus, initialized, ended bool) v1.PodPhase {
	t := count(pod, s)
	switch {
	case t.initFailed > 0:
		return v1.PodFailed
	case t.initPending > 0, t.sidecarPending > 0 && !initialized, t.waiting > 0, t.unknown > 0:
		return v1.PodPending
	case t.running > 0:
		return v1.PodRunning
	case t.stopped == 0:
		return v1.PodPending
	case t.stopped > t.stoppedForGood && !ended:
		return v1.PodRunning
	case t.stopped == t.succeeded:
		return v1.PodSucceeded
	default:
		return v1.PodFailed
	}
}

// count tallies the statuses of the pod's containers.
func count(pod *v1.Pod, s *v1.PodStatus) tally {
	var t tally
	policy := pod.Spec.RestartPolicy
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		cs := find(s.InitContainerStatuses, c.Name)
		if isSidecar(c) {
			t.addSidecar(cs)
		} else {
			t.addInit(c, cs, policy)
		}
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		t.addRegular(c, find(s.ContainerStatuses, c.Name), policy)
	}
	return t
}

// ended returns how a container last ended if it does not run now, and nil otherwise.
func ended(s *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case s == nil || s.State.Running != nil:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated
	default:
		return nil
	}
}

func (t *tally) addInit(c *v1.Container, s *v1.ContainerStatus, policy v1.RestartPolicy) {
	end := ended(s)
	switch {
	case end == nil:
		t.initPending++
	case end.ExitCode != 0 && !restartsAfter(c, policy, end.ExitCode):
		t.initFailed++
	}
}

// addSidecar counts a sidecar. One that has ended or is restarting does not matter for the phase.
func (t *tally) addSidecar(s *v1.ContainerStatus) {
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
		if s.Started == nil || !*s.Started {
			t.sidecarPending++
		}
	case ended(s) == nil:
		t.sidecarPending++
		t.waiting++
	}
}

func (t *tally) addRegular(c *v1.Container, s *v1.ContainerStatus, policy v1.RestartPolicy) {
	end := ended(s)
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
	case end == nil:
		t.waiting++
	default:
		t.stopped++
		if !restartsAfter(c, policy, end.ExitCode) {
			t.stoppedForGood++
		}
		if s.State.Terminated != nil && end.ExitCode == 0 {
			t.succeeded++
		}
	}
}

// find returns the status of a container by name, or nil.
func find(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}

// terminal reports whether a phase is final.
func terminal(phase v1.PodPhase) bool {
	return phase == v1.PodSucceeded || phase == v1.PodFailed
}
