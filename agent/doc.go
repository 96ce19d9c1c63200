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
//	                           │
//	                           ▼  on a node of a cluster
//	                    status.Writer ─▶ API server
//
//	truth                                         owner
//	what should run                               source (a manifest that went bad keeps its last good pod)
//	local ConfigMaps, Secrets, volumes, claims, RuntimeClasses  objects
//	the API server's objects in use               objects/watched (what it said last; the API server owns them)
//	tokens of service accounts                    tokens, in memory alone
//	which volume a claim has                      volumes/claims for local ones, the API server for its own
//	how large a claim's volume was made here      volumes/expand, in memory; the API server owns the claim
//	what a cluster knows of the node              the API server, kept true by noderegistry
//	which mirrors of static pods a cluster has    the API server, kept right by mirror
//	which sandboxes and containers exist          the runtime, read by observe
//	a pod's phase: Running, Terminating, Terminated  worker
//	what a pod needs next                         plan (pure)
//	admission's verdict, hooks done, why a pod ends  checkpoint
//	ephemeral containers added to a pod           checkpoint
//	probe verdicts                                probes
//	resources allocated by a resize that is not done  checkpoint, decided by resize (pure)
//	what pods and the node use                    the kernel, read by stats when somebody asks
//	what container logs take                      logs, read from the disk
//	images and pulls                              images, over the runtime's store
//	who pulled which image with what              images/records
//	registry logins of the node                   credentials
//	the node's own certificates                   certs
//	directories and mounts of a pod               volumes
//	which storage drivers are registered          volumes/csi, found by plugins; what a cluster knows of them, kept true by csinode
//	what size a claim's volume has been given     the claim in the API server; in memory, volumes/expand
//	cgroups                                       cgroups
//	a pod's last status                           status.Store; of it, what the API server says: cluster
//	what happened, step by step                   timeline, events (tracing tells it to a collector, and keeps nothing)
//	which events the API server is to be told of  events/writer
//
// # A pod's way
//
// A source hands the mux what it has. The mux's merged set is reconciled with the workers: a new pod gets a worker, a changed static pod is removed
// and queued behind its predecessor of the same full name (but one that changed in cpu and memory alone keeps its UID, and is resized), a pod that no source wants any more is removed, but only once the source that it
// came from has reported. One that is wanted again under its UID while it leaves is queued, too, and its containers' restart counts go on.
//
// A pod of a cluster's API server (package cluster) comes the same way. It is stopped when it is deleted there, and its record and status stay until the API server, to
// which the status writer confirms that nothing of it is left, has it no more.
//
// The worker makes passes. A pass observes the pod in the runtime, has plan decide, walks the ladder of steps (pipeline.go) downwards to bring up and
// keep up, or upwards to take down, derives the status, and writes the checkpoint. Everything is level-triggered: events, probe results,
// finished tasks, changed objects and timers only ring the worker's bell. A pass never blocks on a grace period, a hook or a pull: those are tasks
// beside the worker, whose end rings the bell.
//
// A pod's objects come from where it came from itself: a manifest's pod reads local ones only, a pod of the API server the API server's only.
//
// # A restart
//
// The checkpoint and the runtime's labels say which pods there were; each gets a worker in the phase it was left in, and passes go on from what is
// observed. None may ask for room before all are known. Where other containers run than the record knows, another agent was here: the first pass goes on from what the API server says of the pod, and
// what the record says of its status is not told. Nothing is removed before the pod's source has reported. What nobody wants (cgroups, directories) is pruned after all sources
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
