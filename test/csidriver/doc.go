// Package csidriver is a CSI driver for tests: it mounts folders of its own, fails where it is told to, and writes down what it was asked.
//
// Purpose: [Start] serves a driver on a socket in a directory, and its registration beside it, in the test's process; the command in main is the same as a process of its
// own, which can be killed. Inline volumes are a tmpfs each; other volumes are folders that outlive their pods.
//
// Truth owned: what lies in the driver's directory:
//
//	volumes/<handle>      a volume's data
//	volumes/<handle>.img  that of a block device
//	faults/<Method>       what shall go wrong with a call (NodePublishVolume, …): see [Fault]
//	calls                 the calls so far, one JSON object a line
//	csi.sock              the driver's socket
//
// Concurrency: a [Driver] serves calls at the same time, as drivers do. It keeps no state in memory but the loop devices behind volumes that are
// block devices, which are gone when it is.
package csidriver
