// Package userns gives pods with hostUsers: false user and group ids of their own.
//
// Purpose: [Allocator.Ensure] returns a pod's id mapping, and makes one where it has none: a range of the node's ids that no other pod has, which starts at 0 inside
// of the pod. [HostRange] says which ids the node has to give.
//
// Truth owned: which pod has which ids. It lies on the disk only, in the file "userns" of each pod's directory, whose format is the kubelet's, so that a kubelet and
// berth can take over each other's pods. A range is free again when the pod's directory is gone, and that goes only after the pod's sandbox. Where a file
// cannot be read, the runtime knows which ids the pod's sandboxes have.
//
// Concurrency: an [Allocator] is safe for concurrent use.
package userns
