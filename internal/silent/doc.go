// Package silent bounds what waits for the servers of file systems that do not answer.
//
// Purpose: who asks such a server waits in the kernel, a thread or a process for each question, and
// nobody can end that. So only [MostOfServer] wait for one server, [MostOfTenant] processes for all
// servers of one tenant, and [MostLooks] threads and [MostProcesses] processes for all of them. A
// server that nobody looks at yet has a place even then, and so has a tenant without any; a tenant
// without any at a server has one there: up to four times as many. So it takes many servers, or
// many tenants, to keep others from their places.
// [Looks] does that for looks at files, [Places] for processes.
//
// Truth owned: which looks at files are under way, and how many processes wait. Concurrency: a
// Looks and a Places are safe for concurrent use.
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
	MostOfDisk    = 256
	MostLocal     = 512
)
