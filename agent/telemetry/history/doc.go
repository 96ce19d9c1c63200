// Package history keeps on the disk what happened to the node's pods, so that it outlives the agent
// and the pods.
//
// Purpose: events and timelines are appended as lines of JSON to a few files (segments), whose size
// and age are bounded. "berth events --since" and "berth why --previous" read them. Nobody waits
// for the disk: what is recorded goes into a queue, and a loop writes the queue a few seconds
// later. History is not worth more than the pods: what cannot be written is lost, and a crash of
// the machine may take the last seconds, or tear the last line of a segment.
//
// Truth owned: the past, as far as the segments reach. Concurrency: a [Recorder] is safe for
// concurrent use; [Recorder.Run] belongs to one goroutine. A nil *Recorder keeps nothing.
package history
