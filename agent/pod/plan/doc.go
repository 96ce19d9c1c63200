// Package plan decides what one pod needs next.
//
// Purpose: [Decide] turns a pod, what was observed of it in the runtime, and a few remembered facts
// into [Actions]: data that the steps carry out. [DecideStop] does the same for a pod that has to
// end. [Backoff] is a container's delay of CrashLoopBackOff.
//
// Truth owned: the rules of a pod's life: which container starts when, what is restarted, and in
// which order things stop. The package owns no state.
//
// Concurrency: everything is pure: no I/O, no clock, no logger. All of it is safe to call from
// anywhere.
package plan
