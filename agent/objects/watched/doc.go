// Package watched keeps the API server's objects that this node's pods use.
//
// Purpose: volumes, environments and pull secrets of pods that come from the API server read its ConfigMaps, Secrets, claims, Services, RuntimeClasses and CSIDrivers. A
// node may see such an object only by its name, and only while a pod of it refers to it: so each object in use has a watch of its own, begun when the first pod
// that uses it is seen, and ended when the last one is gone ([Watcher.Use], [Watcher.Drop]). Services, RuntimeClasses and CSIDrivers, which every node may see, have one
// watch for all. Claims and their volumes a node may only get, not watch: they are fetched until the claim is bound. After that only a claim whose volume may grow
// on this node is asked for again, once a minute, which is the one thing that is polled.
//
// An object marked immutable is fetched once, and not watched: whatever becomes of it reaches no pod that has it. The next pod has it fetched anew, and so it is with
// claims: one of that name may have been deleted and made again while a pod that is going still has the old one. A watch that ends is resumed where it
// was; what has expired, or whose server was away, is listed anew. While the server is away the last known objects stay.
//
// Truth owned: what the API server said last of each object in use, and which pods use it.
//
// Concurrency: a [Watcher] is safe for concurrent use, and its answers come from memory. Objects in it are shared and must not be modified. Errors and
// logs name objects, and quote nothing of them.
package watched
