// Package volumes gives a pod its directories and its volumes on the host, and takes them away
// again.
//
// Purpose: [Manager.EnsureDirs] makes the pod's directories. [Manager.Ensure] brings the pod's
// volumes up and keeps them up. [Manager.SubPath] mounts one subPath. [Manager.Remove] takes
// everything down. Which ConfigMaps and Secrets a pod reads is in package references, which kinds
// of volumes are refused is in package volumekinds, and which PersistentVolume is behind a claim is
// in package claims.
//
// Truth owned: what lies beneath <root>/pods. The names there are the kubelet's, so that a kubelet
// and berth can take over each other's pods:
//
//	pods/<uid>/volumes/kubernetes.io~<kind>/<volume>
//	    the volume that containers mount; <volume> is the PersistentVolume's name for a claim
//	pods/<uid>/plugins/kubernetes.io~empty-dir/<name>/ready
//	    the directory <name> was fully set up; <name> is wrapped_<volume> for other kinds
//	pods/<uid>/plugins/kubernetes.io~local-volume/<name>/ready
//	    the PersistentVolume <name> is mounted, and the owner of its files is set
//	pods/<uid>/plugins/berth.dev~claim/<volume>.json
//	    the PersistentVolume that the pod has behind a claim
//	pods/<uid>/containers/<container>/<8 hex digits>
//	    a termination log, one for each attempt
//	pods/<uid>/etc-hosts
//	    the pod's /etc/hosts
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>
//	    the bind mount of a subPath
//
// Some work may last: mounting from a server, making a file system, changing the owner of many
// files. It runs beside the caller's sync, see [Slow].
//
// Nothing is remembered in memory. Every call looks at the disk and at the mounts, and does what is
// missing. So calls may be repeated, and may be cut off at any point. The files of ConfigMaps,
// Secrets, downward API and projected volumes change all at once, by one rename of a symbolic link.
//
// What lies in a volume belongs to containers and is never trusted. No operation here follows a
// symbolic link out of a volume. No deletion follows a symbolic link at all, or crosses a mount
// point. The contents of hostPath volumes and PersistentVolumes are never deleted. On kernels
// before 5.6 (see package beneath) a subPath with a symbolic link in it is refused.
//
// Concurrency: a Manager may be used from many goroutines for different pods. The calls for one pod
// UID must come one after the other: the pod's worker sees to that. [Manager.List],
// [Manager.ReadTerminationMessage] and [Manager.ReadEnvFile] may run at any time.
package volumes
