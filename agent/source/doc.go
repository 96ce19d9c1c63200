// Package source says which pods and local objects are desired: it reads manifests, checks them, and merges what the sources say.
//
// Purpose: a source (a manifest directory or file, [File]; a manifest URL, [HTTP]; a cluster's API server, [API]) gives [Snapshot]s. [Mux] merges those of all sources into one desired set,
// an [Update]. [Decoder] turns the bytes of one manifest into pods and objects, each with a [Verdict]; [Validate] does the same for files without an agent.
//
// Pods of manifests get what a kubelet gives to static pods: the same defaults, name suffix, UID, annotations, toleration and validation, so that a
// node can change between the two without restarting one. They may use ConfigMaps, Secrets and PersistentVolumeClaims, which are resolved from local objects
// only, and no other API object. Pods of the API server are taken as they are: it has defaulted and checked them.
//
// Truth owned: which pods and local objects the manifests want, and what is wrong with manifests. Two rules protect running pods:
//
//   - A manifest that turns bad does not remove anything: the last good version of each pod and object of it stays until the file is good again, or deleted.
//   - A directory, a URL or an API server that cannot be read is not an empty one: the last snapshot stays, and of the first two says so.
//
// Where two manifests have the same pod or object, the file that has it keeps it; where both are new, the one whose name sorts first has it.
//
// Concurrency: [File.Run] is one goroutine that owns the file's state and calls Out; a second one, joined before Run returns, waits for the kernel's
// notices. [Mux] is safe for concurrent use. Decoding is pure. Pods and objects that were given out are shared and must not be modified.
package source
