// Package events keeps the node's latest Kubernetes events in memory.
//
// Purpose: a ring of v1.Event for "berth events", "berth describe" and watchers; package writer has the API server keep them. What repeats is counted rather
// than repeated, what differs only in its message over and over is combined, and an object that never stops is cut off, all as client-go's event
// correlator does it, so that one bad pod does not push out what happened to the others.
//
// Truth owned: the events of this run of the agent.
//
// Concurrency: a [Recorder] is safe for concurrent use. Subscribers that do not keep up lose events, never block the writer.
package events
