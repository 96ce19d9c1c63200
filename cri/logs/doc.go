// Package logs reads container logs as runtimes write them: lines of the CRI's format,
//
//	2026-01-02T03:04:05.123456789Z stdout F what the container printed
//
// where the tag is F for a full line and P for a part of one, to which the next line belongs.
//
// Purpose: what kubectl logs shows, from one log file: its last lines, since a time, up to a number of bytes, with times, and followed across
// rotations until the container has ended. Output is the kubelet's to the byte.
//
// Defence: whoever can write into a log directory can put anything there. Files are opened beneath a root without following any link, only
// regular files are read, what is no log line is passed over, and a line of any length takes a fixed amount of memory.
//
// Truth owned: none.
//
// Concurrency: [Read] may be called from many goroutines; each call has its own state and ends all it started before it returns.
package logs
