// Package watched keeps the API server's objects that this node's pods use.
//
// Purpose: volumes, environments and pull secrets of pods from the API server read its ConfigMaps,
// Secrets, claims, Services, RuntimeClasses, CSIDrivers and ClusterTrustBundles. A node may see a
// ConfigMap or Secret only by its name, and only while one of its pods refers to it. So each object
// in use has its own watch. The watch begins when the first pod that uses the object is seen, and
// ends when the last one is gone ([Watcher.Use], [Watcher.Drop]). Every node may see all Services,
// RuntimeClasses, CSIDrivers and ClusterTrustBundles, so each of these kinds has one watch. A node
// may get claims and their volumes, but not watch them: they are fetched until the claim is bound.
// After that, only a claim whose volume may grow on this node is fetched again, once a minute.
// Nothing else is polled.
//
// An object that is marked immutable is fetched once, and not watched: no later change of it
// reaches a pod that has it. The next pod that uses such an object fetches it anew. The same holds
// for claims: a claim of the same name may have been deleted and made again while a pod that is
// terminating still has the old one. A watch that ends is resumed at its last revision. The objects
// are listed again if the revision has expired, or if the server was away. While the server is
// away, the last known objects stay.
//
// A pod may name any number of objects. Few of the requests for them are out at once
// ([kube.Turns]), also when all are listed or watched again. An object that several pods use is
// requested with the first free turn of any of them.
//
// Truth owned: what the API server said last of each object in use, and which pods use it.
//
// Concurrency: a [Watcher] is safe for concurrent use, and answers from memory. Its objects are
// shared and must not be modified. Errors and logs name objects, and quote nothing of their
// content.
package watched
