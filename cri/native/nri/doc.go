// Package nri lets plugins of the Node Resource Interface (NRI) see the pods of the native runtime,
// and change how their containers run.
//
// Purpose: a plugin is a program of the node's administrator that pins CPUs, adds devices and
// mounts, and so on. It is started from a directory, or connects to a socket. The library
// github.com/containerd/nri speaks with plugins and joins what several of them want; this package
// has the calls that the runtime makes at the steps of a pod's life, in the terms of the NRI.
//
//	container's spec ─▶ CreateContainer ─▶ plugins, in the order of their index ─▶ the spec, changed
//
// What plugins want of other containers than the one they are asked about is done afterwards, one
// change after the other, by [Host]: the runtime may hold such a container while plugins are asked.
//
// Truth owned: what plugins were told of pods and containers, which is what a plugin that connects
// later is told at once. It is not on the disk: the runtime gives it to [Plugins.Start].
//
// Concurrency: [Plugins] is safe for concurrent use. Plugins are asked about one thing after the
// other. One that does not answer in two seconds is disconnected, unless it says that it is to be
// kept, and one that reads nothing always. What is wanted of other containers is done while nobody
// waits for it; only a plugin that changes containers on its own account waits for [Host]. A nil
// *Plugins has no plugins, and every call succeeds.
package nri
