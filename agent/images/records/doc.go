// Package records keeps which images were pulled with which credentials, so that a pod cannot use
// an image that the registry would refuse to it.
//
// Purpose: a [Store] writes an intent before a pull, and after the pull a record of the credentials
// that the registry accepted. [Store.Allowed] compares a pod's own credentials with the record, if
// the node's [Policy] demands it. Intents and records are files in the kubelet's format and places,
// image_manager/pulling and image_manager/pulled, so that a kubelet and berth can each take the
// node over from the other.
//
// Truth owned: the two directories. Which images exist is the runtime's truth. An image with
// neither an intent nor a record was not pulled by an agent of this node: it is preloaded.
//
// Concurrency: a [Store] is safe for concurrent use by one process.
package records
