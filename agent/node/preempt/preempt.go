package preempt

import (
	"fmt"
	"log/slog"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
)

const (
	// Reason is the reason of a preempted pod's status and of its event, in the kubelet's words;
	// message is the message of both.
	Reason  = "Preempting"
	message = "Preempted in order to admit critical pod"
)

// Deps are what a preemptor works with.
type Deps struct {
	// Cluster says that the node has an API server.
	Cluster bool
	// Stop asks a pod to end.
	Stop func(uid types.UID, stop worker.Stop)
	// Event records an event about a pod.
	Event func(pod *v1.Pod, container, kind, reason, message string)
	// Preempted counts a pod that has to leave for want of a resource.
	Preempted func(resource string)
	Logger    *slog.Logger
}

// Preemptor makes room for critical pods. Make it with [New].
type Preemptor struct{ deps Deps }

// New returns a preemptor.
func New(deps Deps) *Preemptor { return &Preemptor{deps} }

// Victims returns the pods that must leave so that a refused pod can run. If there are none, it
// returns the refusal that stands.
//
// Only a critical pod takes the place of others, and only if nothing but resources is missing: a
// refusal for another reason stands instead.
func (p *Preemptor) Victims(in admit.Input, refused *admit.Rejection) ([]*v1.Pod, *admit.Rejection) {
	if !p.critical(in.Pod) || len(refused.Lacks) == 0 {
		return nil, refused
	}
	other := in
	other.Allocatable = nil
	if r := admit.Check(other); r != nil {
		return nil, r
	}
	var candidates []*v1.Pod
	for _, pod := range in.Others {
		if p.yields(pod, in.Pod) {
			candidates = append(candidates, pod)
		}
	}
	victims, ok := pick(refused.Lacks, candidates)
	if ok {
		return victims, nil
	}
	if !p.deps.Cluster {
		return nil, refused
	}
	return nil, unrecovered(refused, lacks(refused.Lacks).without(candidates))
}

// critical reports whether a pod may take the place of others.
func (p *Preemptor) critical(pod *v1.Pod) bool {
	if p.deps.Cluster {
		return pods.IsCritical(pod)
	}
	return pods.Priority(pod) >= pods.Critical
}

// yields reports whether a pod gives its place to a critical pod: it is not critical itself, or its
// priority is lower. In a cluster, the priority of a critical pod counts only if its spec has one.
func (p *Preemptor) yields(pod, to *v1.Pod) bool {
	if !p.critical(pod) {
		return true
	}
	if p.deps.Cluster && (pod.Spec.Priority == nil || to.Spec.Priority == nil) {
		return false
	}
	return pods.Priority(pod) < pods.Priority(to)
}

// unrecovered is the refusal of a critical pod for which no set of pods can make room, in the
// kubelet's words.
func unrecovered(refused *admit.Rejection, missing lacks) *admit.Rejection {
	var list strings.Builder
	for _, s := range missing {
		fmt.Fprintf(&list, "(res: %s, q: %d), ", s.Resource, s.Amount)
	}
	return &admit.Rejection{
		Reason: "UnexpectedAdmissionError",
		Message: "Unexpected error while attempting to recover from admission failure: preemption: error finding a set " +
			"of pods to preempt: no set of running pods found to reclaim resources: [" + list.String() + "]",
		Detail: refused.Message,
	}
}

// Leave asks a pod to leave for another pod, which lacks what its refusal says. Leave does not wait
// for the pod's end: the pod gets its own grace period.
func (p *Preemptor) Leave(victim, to *v1.Pod, refused *admit.Rejection) {
	resource := string(refused.Lacks[0].Resource)
	p.deps.Logger.Warn("pod is preempted", "pod", pods.FullName(victim), "uid", victim.UID, "by", pods.FullName(to),
		"resource", resource)
	p.deps.Event(victim, "", v1.EventTypeWarning, Reason, message)
	p.deps.Stop(victim.UID, worker.Stop{Cause: worker.CausePreempted, Reason: Reason, Message: message})
	p.deps.Preempted(resource)
}
