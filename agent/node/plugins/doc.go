// Package plugins finds the plugins that register with the node, above all storage drivers.
//
// Purpose: a plugin makes a socket in a directory (<root>/plugins_registry). [Watcher.Run] asks
// each new socket which plugin it is, gives the plugin to the [Handler] for its type, and reports
// the result to the plugin. It uses the kubelet's registration API
// (k8s.io/kubelet/pkg/apis/pluginregistration/v1). When the socket is removed or replaced, the
// plugin is deregistered from its handler.
//
//	socket appears ─▶ asked ─▶ given to its handler ─▶ registered ─▶ socket goes ─▶ deregistered
//	                    ▲        │ failed
//	                    └─ later ┘
//
// [MakeDirs] makes the directories in which plugins have their sockets.
//
// A plugin whose type has no handler gets an error and is not asked again.
//
// Truth owned: which sockets exist. It is read from the disk when the kernel reports a change, and
// not otherwise.
//
// Concurrency: [Watcher.Run] joins the goroutine of each socket. The calls for one socket come one
// after the other.
package plugins
