// Package drain stops the pods of a node when the node is drained or shuts down, and keeps a
// drained node empty.
//
// Purpose: order.go decides the order in which pods are stopped, and the time for each, by pure
// functions. The order is that of shutdownGracePeriod, shutdownGracePeriodCriticalPods and
// shutdownGracePeriodByPodPriority: pods of a low priority first, each class within its time.
// [Gate] says whether pods may run. [Drainer] stops pods.
//
// Truth owned: whether pods may run on the node. A marker on the disk keeps this over restarts of
// the agent.
//
// Concurrency: a [Gate] and a [Drainer] are safe for concurrent use.
package drain

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/internal/pods"
)

const (
	// DefaultGrace bounds each class at a shutdown if the config has no bound. It is systemd's own
	// default for stopping a service (systemd-system.conf(5), DefaultTimeoutStopSec). A pod with a
	// shorter grace period keeps that.
	DefaultGrace = 90 * time.Second
	// Forever stands for no bound.
	Forever time.Duration = -1
)

// Class is a class of pods: those with at least its priority, and less than the next class's
// priority.
type Class struct {
	Priority int32
	// Grace bounds the pods' own grace periods; [Forever] leaves these as they are.
	Grace time.Duration
}

// Classes returns the classes that the config has for a shutdown, in the order of their stops.
func Classes(k *kubeletconfigv1beta1.KubeletConfiguration) []Class {
	var classes []Class
	for _, c := range k.ShutdownGracePeriodByPodPriority {
		classes = append(classes,
			Class{Priority: c.Priority, Grace: time.Duration(c.ShutdownGracePeriodSeconds) * time.Second})
	}
	total, critical := k.ShutdownGracePeriod.Duration, k.ShutdownGracePeriodCriticalPods.Duration
	switch {
	case len(classes) > 0:
		slices.SortStableFunc(classes, func(a, b Class) int { return cmp.Compare(a.Priority, b.Priority) })
		return classes
	case total > 0:
		return []Class{{0, max(total-critical, 0)}, {pods.Critical, critical}}
	}
	return []Class{{0, DefaultGrace}, {pods.Critical, DefaultGrace}}
}

// Unbounded returns the same classes with grace as their only bound, or without a bound if grace is
// nil. It is for a drain, for which somebody waits.
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

// Group is a group of pods that are stopped at once. The next group's turn comes when all pods of
// this group have ended.
type Group struct {
	Pods []Pod
	// Longest is the longest grace in the group.
	Longest time.Duration
	// Time is the time of the group's class; [Forever] if the class has no bound.
	Time time.Duration
}

// Order puts pods into groups, one group for each class that has pods. Pods below the lowest class
// are stopped with the lowest class.
func Order(list []*v1.Pod, classes []Class) []Group {
	byClass := make([]Group, len(classes))
	for _, pod := range list {
		i := 0
		for i+1 < len(classes) && pods.Priority(pod) >= classes[i+1].Priority {
			i++
		}
		grace := own(pod)
		if limit := classes[i].Grace; limit != Forever {
			grace = min(grace, limit)
		}
		g := &byClass[i]
		g.Pods = append(g.Pods, Pod{UID: pod.UID, Grace: grace})
		g.Longest, g.Time = max(g.Longest, grace), classes[i].Grace
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
