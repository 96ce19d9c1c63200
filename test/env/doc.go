// Package env gives a test, the benchmark or "make run" a containerd of its own, and an agent on it, and takes both away again.
//
// Purpose: [Containerd] (for tests) and [New] start a private containerd with its own root, state, socket, CNI network, subnet, bridge
// and cgroup root, with the sample images imported. [Env.StartAgent] runs the built berth on it. Closing removes everything that either
// made, whatever died before; [Env.Leaks] says what pods have left behind.
//
// Truth owned: the slots. A slot is a number from which every name of an environment follows (see [Layout]), held by a lock file for as
// long as its process lives. So environments run side by side without colliding, and what a killed process left is found, and removed,
// by the next one that starts.
//
// Pods are fenced: their network has no default route and nothing masquerades, so a packet of theirs cannot leave the machine. Pods on the
// host's network are not, except in an environment with a network namespace of its own (see [Options]): from there no packet gets anywhere.
//
// Concurrency: an [Env] and its [Agent]s belong to one test; Kill9, Start, Stop and Restart of one of them must not overlap. Different
// environments are independent.
package env
