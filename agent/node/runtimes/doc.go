// Package runtimes makes the node's container runtime from the config.
//
// Purpose: [Open] returns one [cri.Runtime], whatever the config's runtime says: the CRI socket
// (cri/remote, with cri/containerd for what containerd does beyond the CRI), or the native runtime
// in this process (cri/native). It is chosen when the runtime is first called, because the runtime
// may start after the agent. A node that has changed from one to the other keeps both until nothing
// is left in the former (cri/joint). [Look] is the same for who only looks, beside a running agent.
//
// Truth owned: which runtimes may have pods of this agent, and where (the file berth/runtimes.json
// in the root directory). It is noted before the first pod is made, because a runtime that does not
// answer at the next start must not count as one without pods.
//
// Concurrency: a [Runtime] is safe for concurrent use.
package runtimes
