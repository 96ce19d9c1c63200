package status

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// Messages of states that Derive infers because the runtime has lost the container.
const (
	messageLostRunning = "The container could not be located when the pod was deleted.  The container used to be " +
		"Running"
	messageLostAtEnd     = "The container could not be located when the pod was terminated"
	messageRemoved       = "The container is removed because RestartAllContainers in place"
	messageInitForgotten = "Unable to get init container status from container runtime and pod has been initialized, " +
		"treat it as exited normally"
)

// kind selects one of the pod's three container lists.
type kind int

const (
	initContainer kind = iota
	regularContainer
	ephemeralContainer
)

// containerView derives the statuses of one list of containers.
type containerView struct {
	in   *Input
	seen attempts
	kind kind
	old  map[string]*v1.ContainerStatus
}

// containerStatuses returns the statuses of one of the pod's container lists, in the kubelet's
// order: init containers in the order of the spec, others by name.
func containerStatuses(in *Input, seen attempts, kind kind) []v1.ContainerStatus {
	containers, previous := listOf(in, kind)
	view := &containerView{in: in, seen: seen, kind: kind, old: make(map[string]*v1.ContainerStatus, len(previous))}
	for i := range previous {
		view.old[previous[i].Name] = &previous[i]
	}
	out := make([]v1.ContainerStatus, 0, len(containers))
	for i := range containers {
		out = append(out, view.status(&containers[i]))
	}
	if kind != initContainer {
		slices.SortFunc(out, func(a, b v1.ContainerStatus) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

// listOf returns a list of the pod's containers and their previous statuses.
func listOf(in *Input, kind kind) ([]v1.Container, []v1.ContainerStatus) {
	spec, previous := &in.Pod.Spec, in.previous()
	switch kind {
	case initContainer:
		return spec.InitContainers, previous.InitContainerStatuses
	case regularContainer:
		return spec.Containers, previous.ContainerStatuses
	default:
		containers := make([]v1.Container, 0, len(spec.EphemeralContainers))
		for _, c := range spec.EphemeralContainers {
			containers = append(containers, v1.Container(c.EphemeralContainerCommon))
		}
		return containers, previous.EphemeralContainerStatuses
	}
}

// status derives the status of one container from its attempts. If there is no attempt, it derives
// the status from the previous one.
func (v *containerView) status(c *v1.Container) v1.ContainerStatus {
	old := v.old[c.Name]
	var s v1.ContainerStatus
	if newest := v.seen.newest(c.Name); newest != nil {
		s = v.observed(c, v.seen[c.Name], old)
	} else if v.in.Removed[c.Name] && v.kind != ephemeralContainer {
		s = v.removed(c, old)
	} else {
		s = v.unobserved(c, old)
	}
	v.devices(c, &s, old)
	v.wait(c, &s)
	v.probe(c, &s, old)
	return s
}

// devices sets the health of the container's devices. As on a kubelet, only app containers show it.
func (v *containerView) devices(c *v1.Container, s, old *v1.ContainerStatus) {
	if v.kind != regularContainer {
		return
	}
	s.AllocatedResourcesStatus = v.in.Devices[c.Name]
	if s.AllocatedResourcesStatus == nil && old != nil {
		s.AllocatedResourcesStatus = old.AllocatedResourcesStatus
	}
}

// observed derives the status of a container that the runtime has. Its state is that of the newest
// attempt, its last state that of the attempt before.
func (v *containerView) observed(
	c *v1.Container, list []*runtimeapi.ContainerStatus, old *v1.ContainerStatus,
) v1.ContainerStatus {
	newest := list[0]
	s := v1.ContainerStatus{
		Name:               c.Name,
		RestartCount:       int32(newest.GetMetadata().GetAttempt()),
		Image:              newest.GetImage().GetImage(),
		ImageID:            newest.GetImageRef(),
		ContainerID:        v.containerID(newest.GetId()),
		VolumeMounts:       v.volumeMounts(c, old),
		AllocatedResources: c.Resources.Requests.DeepCopy(),
		Resources:          v.in.Resize.actual(c, newest),
		User:               userOf(newest),
		StopSignal:         stopSignal(newest),
	}
	s.State = v.state(newest)
	if old != nil {
		v.inherit(&s, newest, old)
	}
	if len(list) > 1 {
		if last := v.state(list[1]); last.Terminated != nil {
			s.LastTerminationState = last
		}
	}
	return s
}

// inherit keeps what the attempts do not show: a restart count that never falls, and the end of an
// attempt that the runtime has removed.
func (v *containerView) inherit(s *v1.ContainerStatus, newest *runtimeapi.ContainerStatus, old *v1.ContainerStatus) {
	same := old.ContainerID == s.ContainerID
	attempt := s.RestartCount
	s.RestartCount = max(attempt, old.RestartCount)
	switch {
	case !same && old.State.Terminated != nil:
		s.LastTerminationState.Terminated = old.State.Terminated.DeepCopy()
		if s.State.Running != nil && old.RestartCount >= attempt {
			s.RestartCount = old.RestartCount + 1
		}
	case old.LastTerminationState.Terminated != nil:
		s.LastTerminationState.Terminated = old.LastTerminationState.Terminated.DeepCopy()
	}
	if newest.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		return
	}
	// The runtime has lost the container. The container ran, so it ended. Its status must not say
	// that it never started.
	switch {
	case old.State.Running != nil:
		s.State = v1.ContainerState{Terminated: unknownEnd(messageLostAtEnd)}
		s.RestartCount = old.RestartCount + 1
	case same && old.State.Terminated != nil:
		s.State = *old.State.DeepCopy()
	}
}

// removed derives the status of a container that was removed, to start again together with all
// others. It keeps how the container ended.
func (v *containerView) removed(c *v1.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	waiting := &v1.ContainerStateWaiting{Reason: v.defaultReason()}
	if v.in.RestartingAll {
		waiting.Reason, waiting.Message = ReasonRestartingAll, messageRemoved
	}
	s := v1.ContainerStatus{
		Name:         c.Name,
		Image:        c.Image,
		State:        v1.ContainerState{Waiting: waiting},
		VolumeMounts: v.volumeMounts(c, old),
	}
	if old != nil {
		s.RestartCount, s.LastTerminationState = old.RestartCount, *old.LastTerminationState.DeepCopy()
		switch {
		case old.State.Terminated != nil:
			s.LastTerminationState.Terminated = old.State.Terminated.DeepCopy()
		case old.State.Running != nil: // its end was not observed
			s.LastTerminationState.Terminated = &v1.ContainerStateTerminated{
				Reason:   ReasonRestartingAll,
				Message:  messageRemoved,
				ExitCode: exitCodeUnknown,
			}
		}
	}
	return s
}

// unobserved derives the status of a container that the runtime does not have: it was never
// created, or was removed.
func (v *containerView) unobserved(c *v1.Container, old *v1.ContainerStatus) v1.ContainerStatus {
	if old != nil && old.State.Terminated != nil {
		return *old.DeepCopy()
	}
	s := v1.ContainerStatus{
		Name:         c.Name,
		Image:        c.Image,
		State:        v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: v.defaultReason()}},
		VolumeMounts: v.volumeMounts(c, old),
	}
	if old != nil {
		s.RestartCount = old.RestartCount
		s.LastTerminationState = *old.LastTerminationState.DeepCopy()
		if old.State.Waiting != nil && old.ContainerID != "" {
			s.Image, s.ImageID, s.ContainerID = old.Image, old.ImageID, old.ContainerID
		}
		if old.State.Running != nil && s.LastTerminationState.Terminated == nil {
			s.LastTerminationState.Terminated = unknownEnd(messageLostRunning)
			if !v.in.terminating() {
				s.RestartCount++
			}
		}
	}
	if v.kind == initContainer && !pods.Sidecar(c) && v.seen.anyRegularCreated(v.in.Pod) {
		s.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			Reason: ReasonCompleted, Message: messageInitForgotten,
		}}
	}
	return s
}

// defaultReason is why a container waits if nothing else is known.
func (v *containerView) defaultReason() string {
	if len(v.in.Pod.Spec.InitContainers) > 0 {
		return ReasonPodInitializing
	}
	return ReasonContainerCreating
}

// wait sets the state of a container to Waiting, with the last message of its step, if the
// container is to be started or restarted.
//
// A container that has ended, and restarts only because it was killed for a restart, always waits:
// the API server refuses a status in which a container comes back after an end that its policy does
// not restart.
func (v *containerView) wait(c *v1.Container, s *v1.ContainerStatus) {
	why, ok := v.in.Waiting[c.Name]
	if v.in.terminating() || !v.toBeStarted(c, s) {
		return
	}
	if end := s.State.Terminated; !ok && end != nil && v.in.killedToRestart(end) &&
		!restartsAfter(c, v.in.Pod.Spec.RestartPolicy, end.ExitCode) {
		why, ok = Reason{Reason: v.defaultReason()}, true
	}
	if !ok {
		return
	}
	if s.State.Terminated != nil {
		s.LastTerminationState = s.State
	}
	s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why.Reason, Message: why.Message}}
}

// toBeStarted reports whether the container is still to be started or restarted.
func (v *containerView) toBeStarted(c *v1.Container, s *v1.ContainerStatus) bool {
	switch {
	case s.State.Running != nil:
		return false
	case s.State.Terminated == nil:
		return true
	case v.kind == ephemeralContainer:
		return false
	case v.kind == initContainer && s.State.Terminated.ExitCode == 0:
		return false // also for sidecars, as in a kubelet's status
	default:
		return v.in.startsAgain(c, s.State.Terminated)
	}
}

// probe sets started and ready.
func (v *containerView) probe(c *v1.Container, s, old *v1.ContainerStatus) {
	if v.kind == ephemeralContainer {
		return
	}
	running := s.State.Running != nil
	if !running || old == nil || old.ContainerID != s.ContainerID || old.State.Running == nil {
		old = nil // the previous status is of another attempt
	}
	result := v.in.Probes[c.Name]
	if v.containerID(result.ContainerID) != s.ContainerID {
		result = Probe{}
	}
	started := running &&
		(c.StartupProbe == nil || resultOr(result.Started, old != nil && old.Started != nil && *old.Started))
	s.Started = &started
	if v.kind == initContainer && !pods.Sidecar(c) {
		s.Ready = s.State.Terminated != nil && s.State.Terminated.ExitCode == 0
		return
	}
	s.Ready = started && (c.ReadinessProbe == nil || resultOr(result.Ready, old != nil && old.Ready))
}

// resultOr returns a probe's result, or otherwise if there is no result yet.
func resultOr(result *bool, otherwise bool) bool {
	if result != nil {
		return *result
	}
	return otherwise
}

// state is the API's state of one attempt.
func (v *containerView) state(c *runtimeapi.ContainerStatus) v1.ContainerState {
	switch c.GetState() {
	case runtimeapi.ContainerState_CONTAINER_RUNNING:
		if v.in.Hooked[c.GetId()] {
			break
		}
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: timeOf(c.GetStartedAt())}}
	case runtimeapi.ContainerState_CONTAINER_EXITED:
		message := c.GetMessage()
		if own := v.in.TerminationMessages[c.GetId()]; own != "" {
			if message != "" {
				message += ": "
			}
			message += own
		}
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode:    c.GetExitCode(),
			Reason:      c.GetReason(),
			Message:     message,
			StartedAt:   timeOf(c.GetStartedAt()),
			FinishedAt:  timeOf(c.GetFinishedAt()),
			ContainerID: v.containerID(c.GetId()),
		}}
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: v.defaultReason()}}
}

// containerID is a runtime id in the API's form; empty stays empty.
func (v *containerView) containerID(id string) string {
	if id == "" {
		return ""
	}
	return cmp.Or(v.in.RuntimeName, DefaultRuntimeName) + "://" + id
}

// volumeMounts returns the container's mounts with their effective recursive read-only mode. They
// never change while the container exists.
func (v *containerView) volumeMounts(c *v1.Container, old *v1.ContainerStatus) []v1.VolumeMountStatus {
	if old != nil && len(old.VolumeMounts) == len(c.VolumeMounts) {
		return slices.Clone(old.VolumeMounts)
	}
	var out []v1.VolumeMountStatus
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		status := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if v.in.RecursiveReadOnly && wantsRecursiveReadOnly(m) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			status.RecursiveReadOnly = &mode
		}
		out = append(out, status)
	}
	return out
}

// wantsRecursiveReadOnly reports whether a mount asks for recursive read-only and may have it.
func wantsRecursiveReadOnly(m *v1.VolumeMount) bool {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false
	}
	return m.MountPropagation == nil || *m.MountPropagation == v1.MountPropagationNone
}

// userOf is the user of the container's first process; nil if the runtime does not report it.
func userOf(c *runtimeapi.ContainerStatus) *v1.ContainerUser {
	if c.GetUser() == nil {
		return nil
	}
	user := &v1.ContainerUser{}
	if linux := c.GetUser().GetLinux(); linux != nil {
		user.Linux = &v1.LinuxContainerUser{
			UID:                linux.GetUid(),
			GID:                linux.GetGid(),
			SupplementalGroups: slices.Clone(linux.GetSupplementalGroups()),
		}
	}
	return user
}

// unknownEnd is the end of a container of which we know only that it ran.
func unknownEnd(message string) *v1.ContainerStateTerminated {
	return &v1.ContainerStateTerminated{Reason: ReasonStatusUnknown, Message: message, ExitCode: exitCodeUnknown}
}
