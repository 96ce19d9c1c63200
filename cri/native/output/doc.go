// Package output carries what a container writes from its pipes to its log in the CRI's format,
// and to whoever is attached.
//
// Purpose: no line is lost and none is doubled, whenever berth is killed.
//
//	container ─▶ shim ─▶ pipe ─ splice(2) ─▶ journal ─ position, lines ─▶ log
//
// The kernel moves bytes from the pipe to the journal. A kill finds each byte in one of them.
// Before lines are written to the log, the position says which bytes they are made of, when they
// came, and how long the log was. With that, the next process of berth makes the same lines again,
// and writes what is missing of them. The position moves on when the lines are in the log.
//
// While berth is down, the container waits as soon as its pipe is full. The shim closes its ends
// of the pipe when the container ends, and then the kernel would drop what is still in the pipe.
// So a sleeping process of a few pages, the keeper, has the pipe open, too.
//
// Truth owned: which output of a container is in its log. It is on the disk (the position) until
// the container is removed; a restart of the machine ends it together with the pipes.
//
// Concurrency: an [Output] is safe for concurrent use. [Output.Close] joins its goroutines.
package output
