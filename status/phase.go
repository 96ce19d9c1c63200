package status

import (
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// tally counts the pod's containers by their effect on the phase.
type tally struct {
	initPending    int // init containers that have not ended yet
	sidecarPending int // sidecars that have not started yet
	initFailed     int // init containers that failed for good

	unknown, waiting, running int
	stopped                   int // regular containers that ended, restarting or not
	stoppedForGood            int // of these, the ones that will not be started again
	succeeded                 int // of these, the ones that ended now with exit code 0
}

// podPhase is the phase that follows from the container statuses. initialized says that regular
// containers exist in the current sandbox. ended says that the pod was taken down; then nothing
// restarts, whatever the restart policy is.
func podPhase(in *Input, s *v1.PodStatus, initialized, ended bool) v1.PodPhase {
	t := count(in, s)
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

// count counts the pod's containers by their statuses.
func count(in *Input, s *v1.PodStatus) tally {
	var t tally
	for i := range in.Pod.Spec.InitContainers {
		c := &in.Pod.Spec.InitContainers[i]
		cs := find(s.InitContainerStatuses, c.Name)
		if pods.Sidecar(c) {
			t.addSidecar(in, cs)
		} else {
			t.addInit(in, c, cs)
		}
	}
	for i := range in.Pod.Spec.Containers {
		c := &in.Pod.Spec.Containers[i]
		t.addRegular(in, c, find(s.ContainerStatuses, c.Name))
	}
	return t
}

// ended returns how a container last ended if it does not run now, and nil otherwise. The end of a
// container that was removed to start again does not count.
func ended(in *Input, s *v1.ContainerStatus) *v1.ContainerStateTerminated {
	switch {
	case s == nil || s.State.Running != nil || s.State.Waiting != nil && in.Removed[s.Name]:
		return nil
	case s.State.Terminated != nil:
		return s.State.Terminated
	case s.State.Waiting != nil:
		return s.LastTerminationState.Terminated
	default:
		return nil
	}
}

func (t *tally) addInit(in *Input, c *v1.Container, s *v1.ContainerStatus) {
	end := ended(in, s)
	switch {
	case end == nil:
		t.initPending++
	case end.ExitCode != 0 && !in.startsAgain(c, end):
		t.initFailed++
	}
}

// addSidecar counts a sidecar. A sidecar that has ended or restarts has no effect on the phase.
func (t *tally) addSidecar(in *Input, s *v1.ContainerStatus) {
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
		if s.Started == nil || !*s.Started {
			t.sidecarPending++
		}
	case ended(in, s) == nil:
		t.sidecarPending++
		t.waiting++
	}
}

func (t *tally) addRegular(in *Input, c *v1.Container, s *v1.ContainerStatus) {
	end := ended(in, s)
	switch {
	case s == nil:
		t.unknown++
	case s.State.Running != nil:
		t.running++
	case end == nil:
		t.waiting++
	default:
		t.stopped++
		if !in.startsAgain(c, end) {
			t.stoppedForGood++
		}
		if s.State.Terminated != nil && end.ExitCode == 0 {
			t.succeeded++
		}
	}
}

// find returns the status of a container by its name, or nil.
func find(statuses []v1.ContainerStatus, name string) *v1.ContainerStatus {
	for i := range statuses {
		if statuses[i].Name == name {
			return &statuses[i]
		}
	}
	return nil
}
