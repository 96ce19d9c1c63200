// Package mirror shows static pods in a cluster's API server, by mirror pods.
//
// Purpose: for each static pod of the node the API server gets a pod of the same name, with the static pod's spec and annotations and the Node as its owner ([Of]).
// It is made anew when it is deleted or shows an older version, and goes with its static pod. Its status is written by status.Writer, as any pod's.
//
// The API server lets a node make no pod that refers to its objects. What a static pod has of local objects is left out of its mirror, which says so in
// the annotation [AnnotationOmits].
//
// Truth owned: none. Which static pods there are, the agent knows; which mirrors there are, the API server.
//
// Concurrency: a Manager's Run is called once. Its other methods are safe for concurrent use, and return at once.
package mirror
