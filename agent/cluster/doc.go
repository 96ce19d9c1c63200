// Package cluster is the agent's connection to a Kubernetes API server: how it is reached, and how its objects are read, followed and written.
//
// Purpose: a [Conn] is made from a kubeconfig by [Dial]. [Client] is a typed client of one kind of object on it, [Client.Follow] lists and watches such objects for as
// long as it is asked to. The generated clients of client-go are not used: with them the agent would be 16 MB larger on disk and 17 MB in memory
// (client-go 0.36.3, berth version), because each knows the types of every API group.
//
// Truth owned: none but the connection itself. Who owns what in a cluster:
//
//	truth                                         owner
//	which pods this node is to run                the API server; source.API has the last that was read
//	a pod's status                                status.Store; status.Writer makes the API server say the same
//	that a pod may go from the API server         status.Writer, once nothing of it is left here
//	the Node object's status, addresses, labels   noderegistry, from the facts of node
//	that this node lives (the Lease)              noderegistry
//	mirror pods                                   mirror, from the static pods that there are
//
// An API server that cannot be read is not an empty one: followers keep what they read last, and nobody is told otherwise.
//
// Concurrency: a Conn and its clients are safe for concurrent use. Follow runs on its caller's goroutine and calls its handler there, one call after the other.
package cluster
