package pod

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/probes"
)

// takeoverWait is how long the first sync of a pod that another agent left running waits for the
// API server to be read. Only the API server has the status that the other agent wrote.
const takeoverWait = 2 * time.Second

// takeover makes pods that another agent left running go on from the status that the API server
// has.
type takeover struct {
	deps *Deps
	// began is the time at which the pods of an earlier run were taken over.
	began atomic.Pointer[time.Time]
}

// run makes the first sync of a pod go on from the status that the API server has, if the record
// does not know the running containers: a kubelet was here meanwhile, or the record was lost. A pod
// that was ready stays ready, with the times of its conditions, and no restart count falls.
func (t *takeover) run(_ context.Context, s *podSync) (steps.Outcome, error) {
	if s.state.takenOver || !t.deps.Cluster.Joined() {
		return steps.Outcome{}, nil
	}
	unknown := slices.ContainsFunc(s.Observed.Containers, func(c *plan.Container) bool {
		return c.Running() && !knows(s.Record.Status, c.Id)
	})
	if !unknown && s.Record.Status != nil {
		s.state.takenOver = true
		return steps.Outcome{}, nil
	}
	var until time.Time
	if began := t.began.Load(); began != nil {
		until = began.Add(takeoverWait)
	}
	if unknown && !t.deps.Desired.ReadAPI() && time.Now().Before(until) {
		return steps.Outcome{Halt: true, RetryAt: until}, nil
	}
	s.state.takenOver = true
	said := t.said(s.Pod)
	if said == nil || said.StartTime.IsZero() { // no agent has written it
		return steps.Outcome{}, nil
	}
	s.Log.Info("pod is taken over with the status that the API server has", "phase", said.Phase)
	s.Record.Status = said.DeepCopy()
	t.deps.Probes.Restore(s.Pod.UID, probeResults(said))
	return steps.Outcome{}, nil
}

// said returns the status that the API server has of a pod. It returns nil if the API server was
// not read, has no such pod, or shows another version of a static pod.
func (t *takeover) said(pod *v1.Pod) *v1.PodStatus {
	if pods.Static(pod) {
		return t.deps.Cluster.Mirrored(pod)
	}
	if newest := t.deps.Desired.Pod(pod.UID); newest != nil {
		return &newest.Status
	}
	return nil
}

// knows reports whether a status has a container with that id.
func knows(s *v1.PodStatus, id string) bool {
	return s != nil &&
		slices.ContainsFunc(statusesOf(s), func(c v1.ContainerStatus) bool { return runtimeID(&c) == id })
}

// probeResults returns the results of the probes of a pod's containers, as a status has them.
func probeResults(s *v1.PodStatus) probes.Snapshot {
	out := probes.Snapshot{}
	for _, c := range statusesOf(s) {
		if id := runtimeID(&c); id != "" && c.State.Running != nil {
			out[c.Name] = probes.Result{ContainerID: id, Started: c.Started != nil && *c.Started, Ready: c.Ready}
		}
	}
	return out
}

func statusesOf(s *v1.PodStatus) []v1.ContainerStatus {
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

// runtimeID returns a container's id without the runtime's name.
func runtimeID(c *v1.ContainerStatus) string {
	_, id, _ := strings.Cut(c.ContainerID, "://")
	return id
}
