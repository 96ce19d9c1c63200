// Package plugins finds the plugins that register with the node: storage drivers above all.
//
// Purpose: a plugin puts a socket into a directory (<root>/plugins_registry). [Watcher.Run] asks who is behind each socket that appears, gives it to the [Handler]
// for its type, and tells the plugin what came of it, by the kubelet's registration API (k8s.io/kubelet/pkg/apis/pluginregistration/v1). When the socket goes, or
// is another one, the plugin is taken back from its handler.
//
//	socket appears ──▶ asked, handed over, told ──▶ registered ──▶ socket goes ──▶ taken back
//	                     ▲        │ failed
//	                     └─ later ┘          a type without a handler is told so, and not asked again
//
// Truth owned: which sockets there are, read from the disk whenever the kernel says that something changed there, and never in between.
//
// Concurrency: a [Watcher] has one Run, which joins the goroutine that it has for each socket. The calls for one socket come one after the other.
package plugins
