// Package api has the words in which the agent's local API speaks: what is under /berth/v1, as JSON.
//
// Purpose: one set of types for the server and for clients, and the summary of a pod that both show. What the kubelet's API has is served as the
// Kubernetes types themselves, and errors are metav1.Status.
//
// Truth owned: the format. Fields are only ever added.
//
// Concurrency: everything is plain data and pure functions.
package api
