// Package streams carries a runtime's events from its stream to a reader who may be slow.
//
// Purpose: a [Group] opens event streams, whose goroutines it joins. Between a stream and its
// reader is a [Mailbox], so that a slow reader never blocks the runtime.
//
// Truth owned: the events that were read and that nobody has taken yet.
//
// Concurrency: everything here may be used from any goroutine. Each open stream has two goroutines,
// which end with its context, with the stream, or with [Group.Close].
package streams
