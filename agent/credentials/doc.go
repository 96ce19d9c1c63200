// Package credentials finds what to log in to image registries with.
//
// Purpose: from a pod's pull secrets ([FromSecrets]), from the node's docker config files ([Files]) and from credential provider plugins ([Plugins]),
// the credentials that fit a repository, the best first. Keys, globs, search paths and the plugins' protocol are the kubelet's. It keeps
// passwords in a [Secret], which nothing prints.
//
// Truth owned: what the node's files and plugins last said, as long as that is good for. A pod's Secrets are package objects'.
//
// Concurrency: [Keyring] is built by one goroutine and then only read. [Files] and [Plugins] are safe for concurrent use.
package credentials
