// Package env gives a test, the benchmark or "make run" a containerd of its own and an agent on it,
// and removes both again.
//
// Purpose: [Containerd] (for tests) and [New] start a private containerd with its own root, state,
// socket, CNI network, subnet, bridge and cgroup root, and import the sample images.
// [Env.StartAgent] runs the built berth on it. Closing removes everything that either of them made,
// also if one of them was killed before. [Env.Leaks] returns what pods have left behind.
//
// Truth owned: the slots. A slot is a number from which every name of an environment follows (see
// [Layout]). A process holds it by a lock file for as long as the process lives. So environments
// can run at the same time. The next environment that starts removes what a killed process left.
//
// Pods cannot send packets out of the machine: their network has no default route, and nothing
// masquerades. This does not hold for pods on the host's network, except in an environment with a
// network namespace of its own (see [Options]), which has no way out.
//
// Concurrency: an [Env] and its [Agent]s belong to one test. Kill9, Start, Stop and Restart of one
// of them must not overlap. Different environments are independent.
package env
