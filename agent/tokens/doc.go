// Package tokens gets the tokens by which pods prove to others which service account they run as.
//
// Purpose: projected volumes have a token for each serviceAccountToken that they name. [Manager.Use] has the API server issue them, bound to the pod, for the
// audience and the time that the pod asks for; each is replaced when 80 % of its life, or a day, is over, and its pod is woken to write the new one. A
// token that cannot be replaced is used until it ends.
//
// Truth owned: the tokens of the pods on this node, in memory alone. [Manager.Drop] forgets a pod's; they end with the pod, to which they are bound.
//
// Concurrency: a [Manager] is safe for concurrent use, and its answers come from memory. No log and no error quotes a token.
package tokens
