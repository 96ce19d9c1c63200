// Package client is a Go client of the agent's local API.
//
// Purpose: typed calls over the unix socket, for the command line and for other programs on the node. Errors say what to do: an agent that is not
// there is a [NotRunningError], what the agent answered with is a [StatusError].
//
// Truth owned: none.
//
// Concurrency: a [Client] is safe for concurrent use.
package client
