// Package containerd has what containerd does beyond its CRI, by its own services on the same
// socket.
//
// Purpose: [Runtime] is the [cri.Runtime] of a containerd, completed in two places. Its events come
// early, and also if its CRI has none (events.go, exits.go). It ends what containerd keeps of a
// removed sandbox (task.go). [Runtime.Capabilities] has the rest: importing, pinning and measuring
// images (import.go, pin.go, progress.go), and removing what containerd has forgotten (repair.go
// with its parts netns.go, bundles.go and shims.go).
//
// The connections belong to the caller ([Connection]; cri/remote has them), and may lead to another
// runtime. That runtime is then used by its CRI alone.
//
// Truth owned: in which life of containerd the paths that earlier lives had left were last removed.
//
// Concurrency: every method may be called from any goroutine. Goroutines are started for event
// streams, and one other for which its call waits. Those of event streams end with their context,
// with the stream, or with [Runtime.Close], which joins them.
package containerd
