// Package claims binds local PersistentVolumeClaims to local PersistentVolumes, as a cluster's controller does for API objects.
//
// Purpose: [Choose] decides, purely, which volume a claim gets. [Binder.Resolve] does so for a pod's claim and remembers the outcome.
//
// Truth owned: which claim has which volume, and which pod has a claim that only one may use. Both are kept in one file, so that neither a restart nor
// a later manifest ever moves a claim to other data:
//
//	claim is bound ──▶ it keeps its volume as long as the volume's manifest is there, also while the claim's own is not
//	volume is gone ──▶ the binding ends when the agent sees the volume's manifest go; one that is missing at the start is waited for
//	claim names another volume (spec.volumeName) ──▶ the user's word counts, unless another claim that is still there has that volume
//
// Nothing is ever made or deleted: no volume is provisioned, no data removed, whatever the reclaim policy says.
//
// Concurrency: a [Binder] is safe for concurrent use; claims are bound one after the other.
package claims
