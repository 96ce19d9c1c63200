// Package csinode reports the storage drivers of this node to the cluster.
//
// Purpose: [Keeper.Run] keeps the node's CSINode object equal to the registered drivers, and of the
// Node object the annotation with the drivers' names for the node and the topology labels. Pure
// functions compute what to write ([Want], [NodePatch]). NodeRestriction and the Node authorizer
// allow a node all of these writes.
//
// Truth owned: none. Package csi owns the drivers, the API server the objects. Drivers that this
// agent has never seen stay in the CSINode: they may still register.
//
// Concurrency: a [Keeper]'s Run is called once; its other methods are safe for concurrent use.
package csinode
