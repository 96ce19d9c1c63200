// Package eventwriter writes the node's events to the API server.
//
// Purpose: a [Writer] takes each event that the recorder of package events has made or counted
// ([Writer.Take]), and writes it. It creates new events, and patches those that were counted again.
// All that happens to one event while it waits is written at once. The recorder aggregates events
// and filters spam; the writer limits the rate of requests (eventRecordQPS, eventBurst). While pods
// wait for their start, events wait for the pods, a few seconds at most. Warnings do not wait.
//
// Truth owned: which events the API server has not received yet. While the API server is away they
// wait, and the oldest are dropped when there are too many.
//
// Concurrency: a [Writer] is safe for concurrent use; Take never blocks.
package eventwriter
