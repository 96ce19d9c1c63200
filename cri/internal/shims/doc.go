// Package shims finds the shim processes of a containerd, and ends those that containerd has
// forgotten.
//
// Purpose: containerd starts a shim for each sandbox or container. When its caller goes away in
// between, a shim may stay that no API of containerd knows. [Of] finds shims among the processes,
// and [Containerd.End] ends one. [RemoveBundle] removes a shim's directory.
//
// Truth owned: none. The processes are the truth; who calls decides which of them are forgotten.
//
// Concurrency: all functions are safe for concurrent use.
package shims
