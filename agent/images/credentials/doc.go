// Package credentials finds the credentials for image registries.
//
// Purpose: it returns the credentials that match a repository, the best first. They come from a
// pod's pull secrets ([FromSecrets]), from the node's docker config files ([Files]) and from
// credential provider plugins ([Plugins]). Keys, globs, search paths and the plugins' protocol are
// the kubelet's. Passwords are kept in a [Secret], which is never printed.
//
// Truth owned: what the node's files and plugins returned last, until it expires. The Secrets of
// pods are owned by package objects.
//
// Concurrency: one goroutine builds a [Keyring]; afterwards it is only read. [Files] and [Plugins]
// are safe for concurrent use.
package credentials
