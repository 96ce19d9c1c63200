// Package eviction protects the node: it asks pods to leave before the node runs out of memory,
// disk or process ids.
//
// Purpose: the kubelet's node-pressure eviction. [Thresholds] reads the config. Pure functions
// decide: which thresholds are met and due ([state.next]), which pod leaves first ([rank]), which
// pod uses more local storage than its limits allow ([overLimit]), and the kubelet's messages.
// [Manager] reads the usage, and asks at most one pod at a time to leave: its worker ends the pod.
//
// A static pod of a node without a cluster has nobody who makes it again. There, unlike under a
// kubelet, a static pod is critical only by its priority, and an evicted one runs again when the
// node has enough.
//
// Truth owned: which thresholds are met since when, the node's pressure, and which pod was asked to
// leave for which signal.
//
// Concurrency: a [Manager]'s Run is called once. A [Pressure] is safe for concurrent use.
package eviction
