// Package remote drives a container runtime through its CRI socket: containerd's CRI plugin, CRI-O,
// or berth's own.
//
// Purpose: [Runtime] is [cri.Runtime] over gRPC. It adds what the CRI leaves open: a deadline on
// every call, one classification of errors, and a connection that comes back by itself after a
// restart of the runtime. What one runtime has beyond the CRI is outside, on the same connections:
// package cri/containerd.
//
// Truth owned: none. Nothing about sandboxes, containers and images is remembered between two
// calls. The package keeps the connections, and whether the runtime turned out to have events.
//
// Concurrency: every method may be called from any goroutine. The package starts goroutines only
// for event streams. They end when their context ends, when the stream breaks or on
// [Runtime.Close], which joins them.
package remote
