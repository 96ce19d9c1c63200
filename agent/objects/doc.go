// Package objects keeps the local objects that pods refer to: ConfigMaps, Secrets, PersistentVolumes and PersistentVolumeClaims that manifests carry, never
// the API server's.
//
// Purpose: static pods may use such objects, but only local ones, so that a manifest on a node cannot reach what the API server guards.
// Volumes, environments and pull secrets resolve their references here, and learn of changes by [Store.OnChange].
//
// Truth owned: which local objects exist now, and each one's revision.
//
// Concurrency: a [Store] is safe for concurrent use. Objects in it are shared and must not be modified.
package objects
