// Package hooks runs the postStart and preStop handlers of containers.
//
// Purpose: run one lifecycle handler (exec, httpGet or sleep) as the kubelet does, and explain its
// failure in the kubelet's words. The pipeline decides when a hook runs, how long it may take and
// what its failure means.
//
// Truth owned: none. [Runner.Run] blocks until the hook is done or its context ends, and keeps
// nothing.
//
// Concurrency: a [Runner] is safe for concurrent use. No goroutine that it starts outlives its Run.
package hooks
