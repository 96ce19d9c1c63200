// Package resize decides how a running pod gets other resources (KEP-1287, KEP-5419).
//
// Purpose: a pod whose cpu or memory is edited goes on running. [Fit] says whether the node has
// room. [State.Updates] says what each of the pod's running containers has to be given, and in
// which order. [Wide] says how the pod's cgroup is limited meanwhile.
//
// Truth owned: the [State] of a resize that is not done. It is part of the pod's checkpoint and
// belongs to the pod's worker. A pod without a State has what its spec says.
//
// Concurrency: everything is pure, except the methods that say that they change the State.
package resize
