// Package silent bounds what waits for the servers of file systems that do not answer.
//
// Purpose: who asks such a server waits in the kernel, a thread or a process for each question, and
// nobody can end that. So only [MostOfServer] wait for one server, and [MostInAll] for all of them:
// nobody's server may take the threads, or the turns, of others. [Looks] does that for looks at
// files.
//
// Truth owned: which looks at files are under way. Concurrency: a Looks is safe for concurrent use.
package silent

// MostInAll bounds how many may wait for silent servers, and MostOfServer how many of them for one.
// MostLocal bounds those at what is taken for a local disk, of which few last: it keeps the agent
// far from the 10,000 threads with which Go ends a program.
const (
	MostInAll    = 128
	MostOfServer = 8
	MostLocal    = 1024
)
