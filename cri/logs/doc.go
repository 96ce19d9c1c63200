// Package logs reads container logs as runtimes write them. Logs have lines of the CRI's format,
//
//	2026-01-02T03:04:05.123456789Z stdout F what the container printed
//
// where the tag is F for a full line, and P for a part of a line that the next line continues.
//
// Purpose: what kubectl logs shows of one log. A reader can ask for the last lines, for lines since
// a time, for at most a number of bytes, and for the time of each line. It can follow the log
// across rotations until the container has ended. The output is the same as the kubelet's, byte for
// byte.
//
// Defence: whoever can write into a log directory can put anything there. Files are opened beneath
// a root without following any link, and only regular files are read. Lines that are not in the
// format are skipped, and a line of any length takes a fixed amount of memory.
//
// Truth owned: none.
//
// Concurrency: [Read] may be called from many goroutines. Each call has its own state, and ends
// everything that it started before it returns.
package logs
