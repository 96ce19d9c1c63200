// Package resize decides how a running pod comes to have other resources (KEP-1287, KEP-5419).
//
// Purpose: a pod whose cpu or memory is edited goes on running: [Fit] says whether the node has room, [State.Updates] what each of its running containers has to be
// given and in which order, [Wide] what its cgroup is held to meanwhile.
//
// Truth owned: the [State] of a resize that is not done; it is part of the pod's checkpoint and belongs to the pod's worker. A pod without one has what its spec
// says.
//
// Concurrency: everything is pure, but for the methods that say that they change the State.
package resize
