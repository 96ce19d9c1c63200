// Package memory gives containers memory of certain NUMA nodes: the memory manager with its
// policies None and Static.
//
// Purpose: under the policy Static, a container of a Guaranteed pod gets its memory and its huge
// pages from as few NUMA nodes as can give them ([Pod.Allocate]), and may use no others
// ([Manager.Start], cpuset.mems). A node gives memory either alone or together with the same other
// nodes. The kernel does not reserve the memory: the manager counts what it has given. Under the
// policy None, every container may use all memory.
//
// With [Config].Rules, a pod with resources of its own can have memory as a whole
// ([Pod.AllocatePod]): its containers have parts of it, or share what is left of it.
//
// Truth owned: which container has memory of which nodes, kept in the kubelet's own file and format
// (package state), which outlives both agents.
//
// Concurrency: a [Manager] is safe for concurrent use.
package memory
