// Package csi brings up volumes of CSI drivers on this node, and takes them down. It is the node's
// part of the Container Storage Interface.
//
// Purpose: [Drivers] are the drivers that have registered. [Node.Prepare] decides from memory
// whether a volume can be brought up now, and collects what the driver needs to know. [Node.Up]
// asks the driver to stage and publish the volume. [Node.Down] asks for a pod's volumes to be
// unpublished, and to be unstaged if no other pod of the node has them. Which requests those are is
// pure (request.go). Package csinode reports the drivers to a cluster.
//
// Truth owned: which drivers are registered, in memory; which volumes pods have, on the disk. The
// names there are the kubelet's, so that a kubelet and berth can take over from each other:
//
//	pods/<uid>/volumes/kubernetes.io~csi/<name>/vol_data.json
//	    written before a driver is first asked, removed when the volume is down
//	pods/<uid>/volumes/kubernetes.io~csi/<name>/mount
//	    where the driver publishes the volume
//	pods/<uid>/plugins/kubernetes.io~csi/<name>/ready
//	    berth's own: how far the volume came, and in which run of the machine
//	plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/globalmount
//	    where the driver stages the volume, beside a vol_data.json
//
// For a volume that containers get as a block device:
//
//	plugins/kubernetes.io/csi/volumeDevices/staging/<name>
//	    where the driver stages the volume
//	plugins/kubernetes.io/csi/volumeDevices/publish/<name>/<uid>
//	    where the driver publishes the volume for a pod
//	plugins/kubernetes.io/csi/volumeDevices/<name>/data/vol_data.json
//	    beside <name>/dev/<uid>, a mount of the device for each pod
//	pods/<uid>/volumeDevices/kubernetes.io~csi/<name>
//	    a link to where the volume is published: what containers get
//	pods/<uid>/plugins/kubernetes.io~csi/volumeDevices/<name>/
//	    berth's own: vol_data.json and ready
//
// <name> is the name of the PersistentVolume, or of the pod's own volume. A volume's life:
//
//	Prepare ─▶ vol_data.json ─▶ "begun" ─▶ NodeStageVolume ─▶ NodePublishVolume
//	    ─▶ (fsGroup) ─▶ "up"
//	Down: NodeUnpublishVolume ─▶ last on the node? NodeUnstageVolume ─▶ vol_data.json is removed
//
// Every call may be repeated, and may be cut off at any point. If a step is not known to be done,
// the driver is asked again: the interface demands that drivers accept this.
//
// Concurrency: all types are safe for concurrent use. If pods share a volume, one pod at a time
// stages, publishes or releases it. No log and no error quotes a secret or a token.
package csi
