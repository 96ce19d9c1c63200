// Package csidriver is a CSI driver for tests. It mounts folders of its own, fails on request, and
// records its calls.
//
// Purpose: [Start] serves a driver on a socket in a directory, and a second socket for its
// registration, in the test's process. The command in main does the same in a process of its own,
// which can be killed. Each inline volume is a tmpfs; other volumes are folders that stay after
// their pods' end.
//
// Truth owned: the content of the driver's directory:
//
//	volumes/<handle>      a volume's data
//	volumes/<handle>.img  the data of a block device
//	faults/<Method>       the fault of a call (NodePublishVolume, …): see [Fault]
//	calls                 the calls so far, one JSON object in each line
//	csi.sock              the driver's socket
//
// Concurrency: a [Driver] serves calls at the same time, as drivers do. Its only state in memory
// are the loop devices of block volumes, which are gone when the driver is.
package csidriver
