// Package csinode makes a cluster know the storage drivers of this node.
//
// Purpose: [Keeper.Run] keeps the node's CSINode object, and of its Node object the annotation with the drivers' names for the node and the topology labels, as the
// registered drivers say. What is to be written is pure ([Want], [NodePatch]). All of it is within what NodeRestriction and the Node authorizer let a node do.
//
// Truth owned: none. The drivers are package csi's, the objects the API server's. Drivers that this agent has never seen stay in the CSINode: they may come yet.
//
// Concurrency: a [Keeper]'s Run is called once; its other methods are safe for concurrent use.
package csinode
