// Package records keeps which images were pulled with which credentials, so that a pod cannot use an image that the registry
// would not give it.
//
// Purpose: before a pull a [Store] writes an intent, after it a record of the credentials that opened the registry. [Store.Allowed] compares a pod's
// own credentials with the record, where the node's [Policy] asks for it. Both are files in the kubelet's format and places,
// image_manager/pulling and image_manager/pulled, so that a kubelet and berth can take the node over from each other.
//
// Truth owned: the two directories. Which images exist is the runtime's truth. An image with neither an intent nor a record was not pulled by an agent
// of this node: it is preloaded.
//
// Concurrency: a [Store] is safe for concurrent use by one process.
package records
