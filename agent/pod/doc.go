// Package pod is the engine of pods: it takes each pod through its life, one sync after the other.
//
// Purpose: pipeline.go has the one list of what a sync does, in order: the look at the world, the
// decisions, the steps that bring the pod up or take it down, and the report. [Engine] carries the
// list out for the workers, one sync of a pod at a time. Everything is level-triggered: a sync
// works from what it observes, never from an event. A sync never blocks on a grace period, a hook
// or a pull: those are tasks beside the worker, and the end of a task wakes the worker.
//
// Truth owned: what lives beside a pod's worker from its first sync to its last (its record, its
// tasks, its last termination messages), and the ephemeral containers that were added on this node.
// Package observe knows the state of the runtime, plan decides the next action for a pod, the
// worker knows why a pod ends, and room decides whether a pod may run.
//
// Concurrency: an [Engine] is safe for concurrent use. The state of a pod belongs to its worker's
// goroutine.
package pod
