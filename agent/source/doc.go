// Package source finds the desired pods and local objects: it reads manifests, checks them, and
// merges what the sources want.
//
// Purpose: a source gives [Snapshot]s. A source is a manifest directory or file ([File]), a
// manifest URL ([HTTP]), or a cluster's API server ([API]). [Mux] merges the snapshots of all
// sources into one desired set, an [Update]. [Decoder] turns the bytes of one manifest into pods
// and objects, each with a [Result]; a Result is the validation result. [Validate] checks files
// in the same way without an agent.
//
// A pod from a manifest gets what a kubelet gives to a static pod: the same defaults, name suffix,
// UID, annotations, toleration and validation. So a node can change between the kubelet and berth,
// and no pod restarts. Such a pod may use ConfigMaps, Secrets and PersistentVolumeClaims, which are
// resolved from local objects only. It may use no other API object. The agent does not change pods
// from the API: the API server has set their defaults and checked them.
//
// Truth owned: which pods and local objects the manifests want, and what is wrong with manifests.
// Two rules protect running pods:
//
//   - A manifest that turns bad removes nothing. The last good version of each pod and object of
//     the file stays until the file is good again, or deleted.
//   - A directory, a URL or an API server that cannot be read is not an empty one. The last
//     snapshot stays, and the snapshot of a directory or a URL reports the error.
//
// If two manifests have the same pod or object, the file that already has it keeps it. If both
// files are new, the file whose name sorts first gets it.
//
// Concurrency: [File.Run] is one goroutine that owns the file's state and calls Out. A second
// goroutine waits for the kernel's notices; Run joins it before Run returns. [Mux] is safe for
// concurrent use. Decoding is pure. Nobody may modify pods and objects after the source has handed
// them out, because they are shared.
package source
