// Package noderegistry reports this node to the cluster: its Node object, that object's status, and
// its Lease.
//
// Purpose: [Registry.Run] follows the node's own Node object, and makes it if it is missing, also
// after somebody deleted it. It writes the Node's status when the status differs from the facts,
// and periodically without a difference. It renews the Lease that says that the node lives. Pure
// functions compute the Node of these facts ([Initial], [Status], [Conditions]) and what to write
// ([StatusPatch], [Adjust]). NodeRestriction and the Node authorizer allow a node all of these
// writes.
//
// Truth owned: none. The facts belong to the agent and the machine. The Node object belongs to the
// API server; the node owns its status, the labels of [DefaultLabels] and one annotation. Labels,
// taints and annotations from others stay, and those of the config are not set again on an existing
// Node.
//
// Concurrency: a Registry's Run is called once and joins the goroutines that it starts. Its other
// methods are safe for concurrent use.
package noderegistry
