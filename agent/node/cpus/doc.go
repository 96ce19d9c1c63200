// Package cpus gives containers CPUs of their own: the CPU manager with its policies none and
// static.
//
// Purpose: under the policy static, a container of a Guaranteed pod that requests a whole number of
// CPUs gets that many for itself (package choose). All other containers share the rest
// ([Manager.Set]), and [Manager.Run] moves them when the rest changes. Under the policy none, every
// container may run everywhere.
//
// With [Config].Rules, a pod with resources of its own can have CPUs as a whole
// ([Pod.AllocatePod]): its containers have parts of them, or share what is left of them.
//
// Truth owned: which pod and which container has which CPUs, kept in the kubelet's own file and
// format (package state), which outlives both agents.
//
// Concurrency: a [Manager] is safe for concurrent use. No lock is held over a call to the runtime.
package cpus
