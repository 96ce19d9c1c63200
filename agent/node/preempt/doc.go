// Package preempt makes room for critical pods: it chooses the pods that must leave so that a
// critical pod can run.
//
// Purpose: the kubelet's preemption of pods for critical pods. pick.go chooses, by pure functions:
// as few pods as possible, and a pod of a lower QoS class before one of a higher class.
// [Preemptor] applies the choice: package room asks it at admission.
//
// In a cluster, the rule of who may take whose place is a kubelet's. Without a cluster, all pods
// are static, and so all would be critical: there a static pod is critical only by its priority,
// and a preempted one runs again when there is room for it (package eviction).
//
// Truth owned: none.
//
// Concurrency: a [Preemptor] is safe for concurrent use.
package preempt
