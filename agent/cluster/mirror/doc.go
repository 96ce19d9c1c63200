// Package mirror shows static pods in a cluster's API server, by mirror pods.
//
// Purpose: for each static pod of the node, the API server gets a pod of the same name with the
// static pod's spec and annotations, and with the Node as its owner ([Of]). The mirror is made
// again when somebody deletes it, or when it shows an older version. It is deleted when its static
// pod is removed. status.Writer writes its status, as that of any pod.
//
// The API server does not let a node make a pod that refers to API objects. A mirror omits the
// static pod's references to local objects, and names them in the annotation [AnnotationOmits].
//
// Truth owned: none. The agent knows the static pods, the API server the mirrors.
//
// Concurrency: a Manager's Run is called once. Its other methods are safe for concurrent use, and
// return at once.
package mirror
