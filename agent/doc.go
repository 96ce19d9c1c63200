// Package agent is the node agent: it makes what the pods' sources want true on one machine, and says what is.
//
// # The parts, and who owns which truth
//
//	  manifests, ConfigMaps, Secrets                     container runtime (CRI)
//	            │                                          │ events     ▲ calls
//	            ▼                                          ▼            │
//	  source ─ Mux ─▶ desired ─▶ worker.Pool ◀─ wakes ─ observe         │
//	  (what is wanted)  │          │ one worker per UID: phase          │
//	            objects ┘          ▼                                    │
//	                         pass: observe ─▶ plan.Decide ─▶ steps ─────┘
//	                               │                           │ asks
//	                               ▼                           ▼
//	                         status.Derive            volumes images hooks probes cgroups
//	                               │
//	                               ▼
//	                    status.Store, checkpoint, timeline, events ─▶ server ─▶ CLI
//
//	truth                                         owner
//	what should run                               source (a manifest that went bad keeps its last good pod)
//	local ConfigMaps and Secrets                  objects
//	which sandboxes and containers exist          the runtime, read by observe
//	a pod's phase: Running, Terminating, Terminated  worker
//	what a pod needs next                         plan (pure)
//	admission's verdict, postStart hooks done     checkpoint
//	probe verdicts                                probes
//	images and pulls                              images, over the runtime's store
//	directories and mounts of a pod               volumes
//	cgroups                                       cgroups
//	a pod's last status                           status.Store
//	what happened, step by step                   timeline, events
//
// # A pod's way
//
// A source hands the mux what it has. The mux's merged set is reconciled with the workers: a new pod gets a worker, a changed static pod is removed
// and queued behind its predecessor of the same full name, a pod that no source wants any more is removed, but only once the source that it
// came from has reported.
//
// The worker makes passes. A pass observes the pod in the runtime, has plan decide, walks the ladder of steps (pipeline.go) downwards to bring up and
// keep up, or upwards to take down, derives the status, and writes the checkpoint. Everything is level-triggered: events, probe results,
// finished tasks, changed objects and timers only ring the worker's bell. A pass never blocks on a grace period, a hook or a pull: those are tasks
// beside the worker, whose end rings the bell.
//
// # A restart
//
// The checkpoint and the runtime's labels say which pods there were; each gets a worker in the phase it was left in, and passes go on from what is
// observed. Nothing is removed before the pod's source has reported. What nobody wants (cgroups, directories) is pruned after all sources
// have.
//
// # Glossary
//
//	pass        one walk over one pod, at most one at a time for each
//	ladder      the ordered list of steps
//	record      a pod's checkpoint
//	placeholder a pod found in the runtime without a checkpoint: it can be stopped, and waits for a source to claim it
//	incarnation one attempt of a container; its number is the restart count it was made with
//	foreign     a pod in the runtime that is of another root directory: left alone
package agent
