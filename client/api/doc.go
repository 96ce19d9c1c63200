// Package api has the types of the agent's local API: everything under /berth/v1, as JSON.
//
// Purpose: one set of types for the server and for clients, and the summary of a pod that both
// show. Parts of the kubelet's API are served as the Kubernetes types themselves, and errors are
// metav1.Status.
//
// Truth owned: the format. Fields may be added, never changed or removed.
//
// Concurrency: everything is plain data and pure functions.
package api
