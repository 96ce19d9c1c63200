// Package worker runs one goroutine per pod UID, which makes passes over its pod until the pod is gone.
//
// Purpose: order and liveness. A pod's passes never overlap; wishes that come faster than passes coalesce, newest wins; a failed pass is tried
// again with back-off; a pod's successor of the same full name or UID starts only after its predecessor is gone.
//
// Truth owned: each pod's [Phase], which only moves forward:
//
//	Running ──Stop, Remove, or a pass that says Finished──▶ Terminating ──pass Done──▶ Terminated ──Remove, pass Done──▶ gone
//
// Eviction, deletion, shutdown and deadlines only ask, through Stop and Remove.
//
// Concurrency: a [Pool] is safe for concurrent use. Its goroutines end when the context given to [New] does, or by [Pool.Close]; [Pool.Wait] joins them.
package worker
