// Package cgroups places pods in the cgroup tree: where each pod is, what limits it, and how it is
// removed.
//
// Purpose: the package has two halves. The pure half computes names ([Layout]) and the limits of a
// pod ([PodLimits]), of its containers ([ContainerResources]) and of its sandbox
// ([SandboxResources]). It computes them as kubelet 1.36 does, so that a kubelet and berth find
// each other's pods. The other half, [Manager], applies the names and limits to this host, through
// github.com/opencontainers/cgroups. It works with cgroup v1, v2 and the hybrid of both, under the
// cgroupfs and the systemd driver.
//
//	ROOT/kubepods                     all pods         shares: all cores; with node allocatable
//	                                                   also memory and pids
//	ROOT/kubepods/pod<uid>            a Guaranteed pod
//	ROOT/kubepods/burstable           Burstable pods   shares: the sum of their requests
//	ROOT/kubepods/burstable/pod<uid>
//	ROOT/kubepods/besteffort          BestEffort pods  shares: 2, the kernel's least
//	ROOT/kubepods/besteffort/pod<uid>
//
// Truth owned: the names and limits of cgroups above the containers. The runtime owns the cgroups
// of containers, which it makes inside the pod's cgroup.
//
// Concurrency: the pure half has no state. Any number of goroutines may use a Manager, but calls
// for the same pod must not overlap (the pod's worker makes them one after the other). A Manager
// owns no goroutines. Every wait ends when its context ends.
package cgroups
