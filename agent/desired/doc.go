// Package desired goes from what the sources want to the workers of pods.
//
// Purpose: [Reconciler] gives each merged set of the sources to the workers: new pods get a worker,
// pods that nobody wants are removed, and changed static pods are replaced or resized. [Adopter]
// makes workers for the pods of an earlier run, from their records and from the runtime. Package
// drain empties the node, and keeps it empty.
//
// Truth owned: what the sources want, and which of them have said so ([State]). No pod is removed
// before the pod's source has said what it wants: a source that cannot be read is not an empty
// source.
//
// Concurrency: [State] and [Adopter] are safe for concurrent use; a [Reconciler] belongs to its
// loop.
package desired
