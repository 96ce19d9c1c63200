// Package cgroups places pods in the cgroup tree: where each one is, what limits it, and how it is taken down.
//
// Purpose: two halves. The pure half computes names ([Layout]), the limits of a pod ([PodLimits]), of its containers
// ([ContainerResources]) and of its sandbox ([SandboxResources]), as kubelet 1.36 does, so that a kubelet and berth find
// each other's pods. The other half, [Manager], makes that true on this host, through github.com/opencontainers/cgroups,
// with cgroup v1, v2 and the hybrid of both, under the cgroupfs and the systemd driver.
//
//	ROOT/kubepods                 all pods            shares: all cores; with node allocatable also memory and pids
//	ROOT/kubepods/pod<uid>        a Guaranteed pod
//	ROOT/kubepods/burstable       Burstable pods      shares: the sum of their requests
//	ROOT/kubepods/burstable/pod<uid>
//	ROOT/kubepods/besteffort      BestEffort pods     shares: 2, the least there is
//	ROOT/kubepods/besteffort/pod<uid>
//
// Truth owned: the names and limits of cgroups above the containers. The runtime owns the containers' own cgroups, which
// it makes inside the pod's.
//
// Concurrency: the pure half is pure. A Manager may be used by any number of goroutines; calls about the same pod must not
// overlap (the pod's worker makes them one after the other). It owns no goroutines. Every wait ends with its context.
package cgroups
