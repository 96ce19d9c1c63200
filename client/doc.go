// Package client is a Go client of the agent's local API.
//
// Purpose: typed calls over the unix socket, for the command line and for other programs on the
// node. Errors say what to do: the error is a [NotRunningError] if no agent runs, and a
// [StatusError] if the agent answered with an error.
//
// Truth owned: none.
//
// Concurrency: a [Client] is safe for concurrent use.
package client
