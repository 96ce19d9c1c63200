// Package objects keeps the local objects that pods refer to. These are the ConfigMaps, Secrets,
// PersistentVolumes, PersistentVolumeClaims, RuntimeClasses and CSIDrivers of manifests, never
// objects from the API.
//
// Purpose: a static pod may use such objects, but only local ones. So a manifest on a node cannot
// reach the objects that the API server guards. Volumes, environments and pull secrets resolve
// their references here, and get changes from [Store.OnChange].
//
// Truth owned: which local objects exist now, and each one's revision.
//
// Concurrency: a [Store] is safe for concurrent use. Nobody may modify an object of a store,
// because the object is shared.
package objects
