// Package claims binds local PersistentVolumeClaims to local PersistentVolumes, as a cluster's
// controller does for API objects.
//
// Purpose: [Choose] decides which volume a claim gets; it is pure. [Binder.Resolve] does so for a
// pod's claim and remembers the result.
//
// Truth owned: which claim has which volume, and which pod has a claim that only one pod may use.
// Both are kept in one file that outlives a power loss. So neither a restart nor a later manifest
// ever gives a claim other data:
//
//	claim is bound ──▶ it keeps its volume as long as the volume's manifest is there,
//	    also while the claim's own manifest is not
//	volume is gone ──▶ the binding ends when the agent sees the volume's manifest go;
//	    a manifest that is missing at the start is waited for
//	claim names another volume (spec.volumeName) ──▶ the claim gets it,
//	    unless another claim that is still there has that volume
//
// Nothing is ever made or deleted: no volume is provisioned, and no data is removed, whatever the
// reclaim policy says.
//
// Concurrency: a [Binder] is safe for concurrent use. Claims are bound one after the other.
package claims
