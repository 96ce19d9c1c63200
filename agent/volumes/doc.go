// Package volumes gives a pod its directories and its volumes on the host, and takes them away again.
//
// Purpose: [Manager.EnsureDirs] makes the pod's directories, [Manager.Ensure] brings its volumes up and keeps them up,
// [Manager.SubPath] makes one mount's subPath, [Manager.Remove] takes everything down. [References] lists the objects that a pod reads.
// [Refused] says of which kinds no volume is ever made. Which PersistentVolume is behind a claim is package claims' to say.
//
// Truth owned: what lies beneath <root>/pods. The names there are the kubelet's, so that a kubelet and berth can take over
// each other's pods:
//
//	pods/<uid>/volumes/kubernetes.io~<kind>/<volume>          the volume that containers mount; of a claim, by the PersistentVolume's name
//	pods/<uid>/plugins/kubernetes.io~empty-dir/<name>/ready   the directory <name> was fully set up; wrapped_<volume> for other kinds
//	pods/<uid>/plugins/kubernetes.io~local-volume/<name>/ready  the PersistentVolume <name> is mounted, and its files' owner set
//	pods/<uid>/plugins/berth.dev~claim/<volume>.json          the PersistentVolume that the pod has behind a claim
//	pods/<uid>/containers/<container>/<8 hex digits>          a termination log, one for each attempt
//	pods/<uid>/etc-hosts                                      the pod's /etc/hosts
//	pods/<uid>/volume-subpaths/<volume>/<container>/<index>   the bind mount of a subPath
//
// What may last (a server's mount, a file system to be made, the owner of many files) runs beside the caller's pass, see [Slow].
//
// Nothing is remembered in memory: every call looks at the disk and at the mounts and does what is missing, so calls may be
// repeated, and may be cut off at any point. Files of ConfigMaps, Secrets, downward API and projected volumes change all at
// once, by one rename of a symbolic link.
//
// What lies in a volume belongs to containers and is never trusted: no operation here follows a symbolic link out of a volume,
// and no deletion follows one at all or crosses a mount point. The contents of hostPath volumes and PersistentVolumes are never deleted.
//
// Concurrency: a Manager may be used from many goroutines for different pods. The calls for one pod UID must come one after
// the other: the pod's worker sees to that. [References], [Manager.List], [Manager.ReadTerminationMessage] and [Manager.ReadEnvFile] may run at any time.
package volumes
