// Package cluster is a node's side of a Kubernetes cluster: present as one thing, or absent as one
// thing.
//
// Purpose: [Connect] makes the connection to the API server, with the certificates that the cluster
// signs. [OpenObjects] returns the API server's objects that pods use. [Join] returns the rest: the
// Node object and its Lease, the CSINode, the mirrors of static pods, the writers of statuses and
// events, and the source of the pods that the cluster binds to the node. A node without a cluster
// gets [NoObjects] and [Alone] from the same functions, so that callers do not have to ask whether
// there is a cluster.
//
// Truth owned: none; the API server owns it. The docs of the packages below say what those packages
// own.
//
// Concurrency: everything is safe for concurrent use.
package cluster
