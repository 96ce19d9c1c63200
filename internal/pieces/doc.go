// Package pieces sends answers whose readers may be slow.
//
// Purpose: an answer that lasts has no time limit as a whole, but who reads nothing of it for long
// does not want it, and must not keep what it takes to make the answer. A [Writer] gives each piece
// a time.
//
// Truth owned: none. Concurrency: a Writer is one handler's.
package pieces
