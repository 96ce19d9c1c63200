// Package noderegistry makes a cluster know this node: its Node object, that object's status, and its Lease.
//
// Purpose: [Registry.Run] follows the node's own Node object, makes it where it is not (also after somebody deleted it), writes its status when it differs from the
// facts and from time to time although it does not, and renews the Lease that says that the node lives. What a Node of these facts looks like is pure ([Initial],
// [Status], [Conditions]), as is what has to be written ([StatusPatch], [Adjust]). All of it is within what NodeRestriction and the Node authorizer let a node do.
//
// Truth owned: none. The facts are the agent's and the machine's; the Node object is the API server's, in which the node owns its status, the labels of [DefaultLabels] and
// one annotation. Labels, taints and annotations that others set stay, and are not set anew on a Node that there is already.
//
// Concurrency: a Registry's Run is called once and joins the goroutines that it starts. Its other methods are safe for concurrent use.
package noderegistry
