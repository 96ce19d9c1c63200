// Package kube is the agent's connection to a Kubernetes API server: it reaches the server, and
// reads, follows and writes the server's objects.
//
// Purpose: [Dial] makes a [Conn] from a kubeconfig. A [Client] is a typed client of one kind of
// object on a Conn, and [Client.Follow] lists and watches such objects until its context ends. The
// generated clients of client-go are not used, because each of them knows the types of every API
// group: with them the agent would be 16 MB larger on disk and 17 MB larger in memory (client-go
// 0.36.3, berth version). [Turns] lets few of the requests that one pod causes be out at once.
//
// Truth owned: only the connection itself. Who owns what in a cluster:
//
//	truth                                         owner
//	which pods this node is to run                the API server; podsource has what it read last
//	a pod's status                                status.Store; status.Writer writes it there
//	that a pod may be deleted there               status.Writer, once nothing of it is left here
//	the Node object's status, addresses, labels   noderegistry, from the facts of node
//	that this node lives (the Lease)              noderegistry
//	mirror pods                                   mirror, from the current static pods
//
// An API server that cannot be read is not an empty API server: followers keep what they read last,
// and report no change.
//
// Concurrency: a Conn and its clients are safe for concurrent use. Follow runs on its caller's
// goroutine and calls its handler there, one call after the other.
package kube
