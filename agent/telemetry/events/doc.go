// Package events keeps the node's latest Kubernetes events in memory.
//
// Purpose: a ring buffer of v1.Event for "berth events", "berth describe" and watchers; package
// eventwriter writes the events to the API server. The package does what client-go's event
// correlator does: it counts a repeated event, it combines events that differ only in their
// messages, and it limits the events of one object. So one bad pod does not push out what happened
// to the others.
//
// Truth owned: the events since the agent's start.
//
// Concurrency: a [Recorder] is safe for concurrent use. Subscribers that do not keep up lose
// events; they never block the writer.
package events
