// Package writer has the API server keep the node's events.
//
// Purpose: a [Writer] takes each event that the recorder of package events has made or counted ([Writer.Take]), and writes it: a new one is created, one that
// was counted again is patched. What happens to one event while it waits is written once. Aggregation and the filter of spam are the recorder's; the rate of
// requests is bounded here (eventRecordQPS, eventBurst). While pods wait to be started, events wait for them, for a few seconds at most, and warnings not at all.
//
// Truth owned: which events the API server has not been told of yet. While it is away they wait, and the oldest go when there are too many.
//
// Concurrency: a [Writer] is safe for concurrent use; Take never blocks.
package writer
