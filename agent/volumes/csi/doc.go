// Package csi brings up volumes of CSI drivers on this node, and takes them down: the part of the Container Storage Interface that is the node's.
//
// Purpose: [Drivers] are those that have registered. [Node.Prepare] says from memory whether a volume can be brought up now and gathers what a driver is told;
// [Node.Up] has the driver stage and publish it; [Node.Down] has a pod's volumes unpublished, and unstaged where no other pod of the node has them.
// Which requests those are is pure (request.go). What a cluster is told of the drivers is package csinode's.
//
// Truth owned: which drivers are registered, in memory; which volumes pods have, on the disk. The names there are the kubelet's, so that each can take over
// from the other:
//
//	pods/<uid>/volumes/kubernetes.io~csi/<name>/vol_data.json      written before a driver is first asked, removed when the volume is down
//	pods/<uid>/volumes/kubernetes.io~csi/<name>/mount              where the driver publishes it
//	pods/<uid>/plugins/kubernetes.io~csi/<name>/ready              berth's own: how far the volume came, and in which run of the machine
//	plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/globalmount   where the driver stages it, beside a vol_data.json
//
// Of a volume that containers get as a block device:
//
//	plugins/kubernetes.io/csi/volumeDevices/staging/<name>         where the driver stages it
//	plugins/kubernetes.io/csi/volumeDevices/publish/<name>/<uid>   where the driver publishes it for a pod
//	plugins/kubernetes.io/csi/volumeDevices/<name>/data/vol_data.json  beside <name>/dev/<uid>, a mount of the device for each pod
//	pods/<uid>/volumeDevices/kubernetes.io~csi/<name>              a link to where it is published: what containers get
//	pods/<uid>/plugins/kubernetes.io~csi/volumeDevices/<name>/     berth's own: vol_data.json and ready
//
// <name> is the PersistentVolume's, or that of the pod's own volume. A volume's life:
//
//	Prepare ─▶ vol_data.json ─▶ "begun" ─▶ NodeStageVolume ─▶ NodePublishVolume ─▶ (fsGroup) ─▶ "up"
//	Down: NodeUnpublishVolume ─▶ last on the node? NodeUnstageVolume ─▶ vol_data.json is removed
//
// Every call may be repeated, and may be cut off at any point: what is not known to be done is asked for again, which drivers have to bear.
//
// Concurrency: all types are safe for concurrent use. Of pods that share a volume, one at a time stages, publishes or gives it back. No log and no
// error quotes a secret or a token.
package csi
