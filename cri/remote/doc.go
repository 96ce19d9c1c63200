// Package remote drives a container runtime through its CRI socket: containerd's CRI plugin, CRI-O, or berth's own.
//
// Purpose: [Runtime] is [cri.Runtime] over gRPC. It adds what the CRI leaves open: a deadline on every call, one classification of
// errors (errors.go), a connection that comes back by itself after the runtime was restarted, an event stream even on a containerd too old for the
// CRI's own (events.go), and the import of image archives, which the CRI has no call for (import.go).
//
// Truth owned: none. Nothing about sandboxes, containers and images is remembered between two calls; the only things kept are the
// connections and which kind of event stream the runtime turned out to have.
//
// Concurrency: every method may be called from any goroutine. The package starts goroutines only for event streams; they end when their
// context ends, when the stream breaks or on [Runtime.Close], which joins them.
package remote
