// Package flight lets callers with the same question at the same time share one answer.
//
// Purpose: a question may be slow or cost much, and its asking goes on for the others if one caller
// leaves. A panic in a goroutine of its own would end the agent; here it is an error that the
// callers get. Its stack is logged.
//
// Truth owned: none; no answer is kept. Concurrency: a [Group] is safe for concurrent use.
package flight
