// Package native is CRI v1 on containerd's client API, without containerd's CRI plugin.
//
// Purpose: [Runtime] is a cri.Runtime that needs of containerd only its stores, its snapshotters
// and its shims, and attaches pods to networks by package cni. It can run beside Docker or beside
// containerd's CRI plugin, because everything is in a containerd namespace of its own. Plugins of
// package nri may change containers.
//
//	record on the disk ─▶ files ─▶ namespaces ─┬▶ CNI ───────────────────────┬▶ sysctls ─▶ ready
//	                                           └▶ pause container and task ──┘
//
// Namespaces are kept by mounts, and containers join them there. So a sandbox needs a pause process
// only as the first process of a PID namespace that its containers share, or if the node's config
// wants one in every sandbox. It is started when the network is attached.
//
// Everything that a sandbox or a container has is derived from its ID. So the undo of each step
// works also if the step never ran, and a record that is there says that something may be left.
// The record goes last. A sandbox whose undo failed stays in the lists as not ready, and the next
// stop or removal tries again.
//
// Truth owned: which sandboxes and containers exist, and what became of them: when they were made,
// started and ended, and how. It is on the disk (records), because containerd forgets a task's
// exit. Whether a process runs is asked of containerd at the start, and watched from then on.
//
// Concurrency: a [Runtime] is safe for concurrent use. Operations that change one sandbox or one
// container wait for each other. The goroutines that watch processes, copy their output and serve
// streams end with [Runtime.Close], which joins them. Containers run on.
package native
