// Package silent bounds what waits for the servers of file systems that do not answer.
//
// Purpose: who asks such a server waits in the kernel, a thread or a process for each question, and
// nobody can end that. So only [MostOfServer] wait for one server, [MostOfTenant] processes for all
// servers of one tenant, and [MostLooks] threads and [MostProcesses] processes for all of them:
// nobody's server may take the threads, or the turns, of others. For whom nobody waits yet there is
// a place even then, up to four times as many. [Looks] does that for looks at files, [Places] for
// processes.
//
// Truth owned: which looks at files are under way. Concurrency: a Looks and a Places are safe for
// concurrent use.
package silent

// MostOfServer bounds how many may wait for one server, and MostOfTenant for all of one tenant's.
// MostLooks and MostProcesses bound the threads and the processes that wait for all servers: of
// processes, each takes some megabytes. MostOfDisk bounds those at what is taken for one local
// disk, and MostLocal for all: few of them last. All this keeps the agent from the 10,000 threads
// with which Go ends a program.
const (
	MostOfServer  = 8
	MostOfTenant  = 32
	MostProcesses = 128
	MostLooks     = 1024
	MostOfDisk    = 512
	MostLocal     = 1024
)
