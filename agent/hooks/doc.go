// Package hooks runs the postStart and preStop handlers of containers.
//
// Purpose: carry out one lifecycle handler (exec, httpGet or sleep) as the kubelet does, and say in the kubelet's words why it
// failed. When a hook runs, how long it may take and what its failure means is the pipeline's decision.
//
// Truth owned: none. [Runner.Run] blocks until the hook is done or its context ends, and keeps nothing.
//
// Concurrency: a [Runner] is safe for concurrent use and starts no goroutine that outlives its Run.
package hooks
