// Package worker runs one goroutine per pod UID. The goroutine syncs its pod until the pod is gone.
//
// Purpose: order and liveness. The syncs of a pod never overlap. Requests that come faster than
// syncs coalesce, and the newest wins. A failed sync is tried again with back-off. A successor with
// the same full name or UID starts only after its predecessor is gone; static pods and pods of the
// API server are no successors of each other.
//
// Truth owned: each pod's [Phase], which only moves forward:
//
//	Running ──Stop, Remove, or a sync that says Finished──▶ Terminating
//	Terminating ──sync Done──▶ Terminated
//	Terminated ──Remove, sync Done──▶ gone
//
// Eviction, deletion, shutdown and deadlines do not change the phase themselves: they call Stop or
// Remove.
//
// Concurrency: a [Pool] is safe for concurrent use. Its goroutines end when the context given to
// [New] ends, or by [Pool.Close]. [Pool.Wait] joins them.
package worker
