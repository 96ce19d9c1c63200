// Package userns assigns user and group ids to pods with hostUsers: false.
//
// Purpose: [Allocator.Ensure] returns a pod's id mapping, and makes one if the pod has none: a
// range of the node's ids that no other pod has. Inside the pod, the range starts at 0. [HostRange]
// says which ids the node has for pods.
//
// Truth owned: which pod has which ids. It is on the disk only, in the file "userns" of each pod's
// directory. The format is the kubelet's, so that a kubelet and berth can take over each other's
// pods. A range is free again when the pod's directory is removed, which happens after the pod's
// sandbox was removed. If a file cannot be read, the runtime knows which ids the pod's sandboxes
// have.
//
// Concurrency: an [Allocator] is safe for concurrent use.
package userns
