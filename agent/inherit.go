package agent

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/mirror"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/probes"
)

// inheritWait is how long the first pass over a pod that another agent left running waits for the API server to be read: what it says of the pod is not to be had elsewhere.
const inheritWait = 2 * time.Second

// inherit has the first pass over a pod go on from what the API server says of it, where the record does not know the containers that run: a kubelet was here meanwhile, or
// the record was lost. A pod that was ready stays so, with the times of its conditions, and no restart count falls. It reports whether that has to be waited for.
func (a *Agent) inherit(p *steps.Pass, st *podState) (wait bool) {
	if st.inherited || a.deps.Conn == nil {
		return false
	}
	strange := slices.ContainsFunc(p.Observed.Containers, func(c *plan.Container) bool { return c.Running() && !knows(p.Record.Status, c.Id) })
	if !strange && p.Record.Status != nil {
		st.inherited = true
		return false
	}
	if strange && !a.desired.ready(source.NameAPI) && time.Since(a.begun) < inheritWait {
		return true
	}
	st.inherited = true
	told := a.toldOf(p.Pod)
	if told == nil || told.StartTime.IsZero() { // no agent has written it
		return false
	}
	p.Log.Info("pod is taken over with the status that the API server has", "phase", told.Phase)
	p.Record.Status = told.DeepCopy()
	a.probes.Restore(p.Pod.UID, verdicts(told))
	return false
}

// toldOf returns what the API server says of a pod; nil where it has not been read or has none, or shows another version of a static pod.
func (a *Agent) toldOf(pod *v1.Pod) *v1.PodStatus {
	if source.Static(pod) {
		if m := a.mirrors.Mirror(pod.Namespace + "/" + pod.Name); m != nil && mirror.Shows(m, pod) {
			return &m.Status
		}
		return nil
	}
	if newest := a.desired.pod(pod.UID); newest != nil {
		return &newest.Status
	}
	return nil
}

// knows reports whether a status is of a container with that id.
func knows(s *v1.PodStatus, id string) bool {
	return s != nil && slices.ContainsFunc(containersOf(s), func(c v1.ContainerStatus) bool { return runtimeID(&c) == id })
}

// verdicts are what the probes of a pod's containers had said.
func verdicts(s *v1.PodStatus) probes.Snapshot {
	out := probes.Snapshot{}
	for _, c := range containersOf(s) {
		if id := runtimeID(&c); id != "" && c.State.Running != nil {
			out[c.Name] = probes.Result{ContainerID: id, Started: c.Started != nil && *c.Started, Ready: c.Ready}
		}
	}
	return out
}

func containersOf(s *v1.PodStatus) []v1.ContainerStatus {
	return slices.Concat(s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses)
}

// runtimeID is a container's id without the runtime's name.
func runtimeID(c *v1.ContainerStatus) string {
	_, id, _ := strings.Cut(c.ContainerID, "://")
	return id
}
