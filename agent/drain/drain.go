// Package drain says in which order, and how quickly, the pods of a node are stopped when it shuts down or is emptied.
//
// Purpose: the order of shutdownGracePeriod, shutdownGracePeriodCriticalPods and shutdownGracePeriodByPodPriority: pods of a low priority first, each class
// within its time. All of it is pure.
//
// Truth owned: none. Concurrency: functions only.
package drain

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

const (
	// Critical is the least priority of a critical pod (scheduling.k8s.io, SystemCriticalPriority).
	Critical int32 = 2000000000
	// NodeCritical is the priority of the class system-node-critical.
	NodeCritical int32 = Critical + 1000
	// DefaultGrace bounds each class at a shutdown where the config says nothing: systemd's own default for stopping a service (systemd-system.conf(5),
	// DefaultTimeoutStopSec). A pod that wants less gets less.
	DefaultGrace = 90 * time.Second
	// Forever is a bound that bounds nothing.
	Forever time.Duration = -1
)

// Class is the pods from a priority on, up to the next class's.
type Class struct {
	Priority int32
	// Grace bounds the pods' own grace periods; [Forever] leaves them.
	Grace time.Duration
}

// Classes returns the classes that the config asks for at a shutdown, those to be stopped first in front.
func Classes(k *kubeletconfigv1beta1.KubeletConfiguration) []Class {
	var classes []Class
	for _, c := range k.ShutdownGracePeriodByPodPriority {
		classes = append(classes, Class{Priority: c.Priority, Grace: time.Duration(c.ShutdownGracePeriodSeconds) * time.Second})
	}
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	switch {
	case len(classes) > 0:
		slices.SortStableFunc(classes, func(a, b Class) int { return cmp.Compare(a.Priority, b.Priority) })
		return classes
	case total > 0:
		return []Class{{0, max(total-critical, 0)}, {Critical, critical}}
	}
	return []Class{{0, DefaultGrace}, {Critical, DefaultGrace}}
}

// Unbounded returns the same order without bounds but grace, where that is given, for a drain that somebody waits for.
func Unbounded(classes []Class, grace *time.Duration) []Class {
	out := slices.Clone(classes)
	for i := range out {
		out[i].Grace = Forever
		if grace != nil {
			out[i].Grace = *grace
		}
	}
	return out
}

// Pod is a pod and the grace that it gets.
type Pod struct {
	UID   types.UID
	Grace time.Duration
}

// Group are pods that are stopped at once; the next group's turn comes when all of them have ended.
type Group struct {
	Pods []Pod
	// Longest is the longest grace of them.
	Longest time.Duration
}

// Order puts pods into groups, one for each class that has any. Those below the lowest class are stopped with it.
func Order(pods []*v1.Pod, classes []Class) []Group {
	byClass := make([]Group, len(classes))
	for _, pod := range pods {
		i := 0
		for i+1 < len(classes) && Priority(pod) >= classes[i+1].Priority {
			i++
		}
		grace := own(pod)
		if limit := classes[i].Grace; limit != Forever {
			grace = min(grace, limit)
		}
		g := &byClass[i]
		g.Pods = append(g.Pods, Pod{UID: pod.UID, Grace: grace})
		g.Longest = max(g.Longest, grace)
	}
	return slices.DeleteFunc(byClass, func(g Group) bool { return len(g.Pods) == 0 })
}

// own returns a pod's own grace period.
func own(pod *v1.Pod) time.Duration {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}

// Priority returns a pod's priority. A node without an API server knows the two system classes by name.
func Priority(pod *v1.Pod) int32 {
	switch {
	case pod.Spec.Priority != nil:
		return *pod.Spec.Priority
	case pod.Spec.PriorityClassName == "system-node-critical":
		return NodeCritical
	case pod.Spec.PriorityClassName == "system-cluster-critical":
		return Critical
	}
	return 0
}
