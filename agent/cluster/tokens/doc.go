// Package tokens gets the tokens with which pods prove the service account that they run as.
//
// Purpose: projected volumes have a token for each serviceAccountToken that they name.
// [Manager.Use] makes the API server issue them, bound to the pod, for the audience and the time
// that the pod asks for. Each token is replaced after 80 % of its life, or after a day, and its pod
// is woken to write the new one. A token that cannot be replaced is used until it expires. A pod
// may name any number of tokens: few of its requests are out at once ([kube.Turns]).
//
// Truth owned: the tokens of the pods on this node, only in memory. [Manager.Drop] removes a pod's
// tokens. They expire with the pod, to which they are bound.
//
// Concurrency: a [Manager] is safe for concurrent use, and answers from memory. No log and no error
// quotes a token.
package tokens
