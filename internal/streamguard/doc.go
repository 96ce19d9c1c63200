// Package streamguard bounds what the client of a stream can have a library keep.
//
// Purpose: the libraries that read streams keep up to 250 frames of SPDY for each connection,
// whatever their size, and whole messages of WebSockets. A [Writer] gives them a connection that is
// read through a guard: [Frames] and [Messages] hand on in small pieces what a client sends at
// once, and fail at what cannot be cut and is too large.
//
// Truth owned: none. Concurrency: a guard is its connection's one reader's.
package streamguard
