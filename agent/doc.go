// Package agent is the node agent: it makes what the sources of pods want true on one machine, and
// reports what is true.
//
// # The floors
//
// A package imports packages of the floors below it, and none of a floor above it.
// test/arch/floors.go states the rule.
//
//	agent                 composition: New, Run, the ordered list of loops
//	agent/server          the face: the HTTP API, with auth, hostlogs and imagesapi
//	agent/desired         from what sources want to workers: adoption, drain, stopped pods
//	agent/cluster         the side of a cluster, present or absent as one thing
//	agent/pod             the engine: pipeline.go is THE list of a pod's life
//	agent/pod/steps       the steps of that list, a file each; origin: whose objects a pod gets
//	agent/source          what is wanted: manifests, a URL, local objects
//	agent/node            this machine: room, admission, eviction, stats, garbage, logs, doctor
//	agent/volumes         every kind of volume; images: pulls and credentials
//	agent/pod/...         what knows one pod and no part: worker, plan, checkpoint, generate
//	agent/telemetry       events, metrics, traces, the journal
//	cri cni cgroups probes status configs    the leaves, and below them internal
//
// # The parts
//
//	manifests, ConfigMaps, Secrets                   container runtime (CRI)
//	          │                                        │ events     ▲ calls
//	          ▼                                        ▼            │
//	source ─ Mux ─▶ desired.Reconciler ─▶ worker.Pool ◀─ observe.PLEG
//	          │                             │ one worker per UID    │
//	       objects                          ▼                       │
//	                      pod.Engine: look ─▶ decide ─▶ steps ──────┘
//	                                                     │ ask
//	                                                     ▼
//	                              report    room volumes images hooks probes cgroups
//	                                │
//	                                ▼
//	             status.Store, checkpoint, timeline, events ─▶ server ─▶ command line
//	                    │
//	                    ▼ on a node of a cluster
//	             cluster.Member ─▶ API server
//
// # Who owns which truth
//
//	which pods and local objects are wanted            source, source/objects
//	which sources have said what they want             desired.State
//	whether pods may run on the node                   desired/drain.Gate
//	which static pods an operator has stopped          desired/stopped.Marks
//	a pod's phase, and why it ends                     pod/worker
//	what a pod needs next                              pod/plan (pure)
//	the facts of a pod that only the disk can keep     pod/checkpoint
//	which sandboxes and containers exist               the runtime, read by pod/observe
//	whether the runtime answers                        the runtime, watched by node/runtimestate
//	which pods are admitted, what they were allocated  node/room
//	which pod, which container has which devices, CPUs, memory
//	                                                   node/devices, node/cpus, node/memory,
//	                                                   given by node/allocation
//	which resource claims are prepared, and by whom    node/dra
//	what the node has for pods                         node, read at each decision
//	what pods and the node use                         the kernel, read by node/stats
//	what the node lacks, and who leaves for it         node/eviction
//	when the machine last shut down                    node/shutdown
//	container logs and what they take                  node/logs
//	results of probes                                  probes
//	directories, mounts and cgroups of pods            volumes, cgroups
//	which claim has which volume                       volumes/claims; the API server for its own
//	which storage drivers are registered               volumes/csi, found by node/plugins
//	images, pulls, who pulled with which login         images, images/records
//	when images were last used                         images/garbage
//	a pod's last status                                status.Store
//	what happened, step by step                        pod/timeline, telemetry/events
//	what happened before the agent's start             telemetry/history
//	the API server's objects that pods use             the API server, read by cluster/watched
//	tokens of service accounts                         cluster/tokens, in memory alone
//	the Node, its Lease, mirror pods                   the API server, kept by cluster/noderegistry
//	                                                   and cluster/mirror
//	the certificates of the node                       cluster/certs
//	keys and certificates of single pods               cluster/podcerts, in memory alone
//	whether the config file is in force                node/configstate
//	which agent has a directory of the machine         node/lock, in files that only root can open
//	which looks wait for which server                  internal/silent
//
// # A pod's way
//
// A source gives the mux what it has. The reconciler gives the merged set to the workers. A new pod
// gets a worker. A changed static pod waits for the end of its predecessor of the same full name;
// if only cpu and memory changed, the pod is resized instead. A pod that no source wants any more
// is removed, but only after the pod's source has said which pods it wants.
//
// The worker makes syncs, at most one at a time. A sync carries out the pipeline: it looks (what is
// wanted, what the runtime has) and decides (may the pod run, what is next). Then the sync walks
// the steps downwards to bring the pod up, or upwards to take the pod down, and reports (status,
// checkpoint, timeline). Everything is level-triggered: events, probe results, ended tasks, changed
// objects and timers only wake the worker. A sync never waits for a grace period, a hook or a pull:
// those are tasks beside the worker, and the end of a task wakes the worker.
//
// A pod of the API server comes the same way. The pod stops when it is deleted there, and the
// status writer confirms to the API server that nothing is left of the pod. The pod's record and
// status stay until the API server has the pod no more. A pod's objects come from the pod's own
// source: a manifest's pod reads only local objects, and a pod of the API server reads only objects
// of the API server.
//
// # A restart of the agent
//
// The checkpoint and the runtime's labels say which pods the last agent had. Each of these pods
// gets a worker in the phase in which the last agent left the pod, and syncs go on from what they
// observe. No pod may ask for room before all pods are known. If containers run that the record
// does not know, another agent was here: the first sync goes on from the status that the API server
// has. A pod that nobody wants is removed only after all sources have said which pods they want.
//
// # Where to look
//
//	an exit is noticed                               agent/pod/observe/pleg.go
//	the CrashLoopBackOff delay is computed           agent/pod/plan/crashloop.go
//	a subPath is opened                              agent/volumes/subpath.go
//	a silent NFS server delays a mount, an unmount   agent/volumes/nfs.go, apart.go
//	a look at a silent file system is left behind    agent/pod/steps/step.go, internal/silent
//	a status patch is made                           status/patch.go, sent by status/write.go
//	preStop's grace is taken                         agent/pod/steps/grace.go, prestop.go
//	a pod is refused                                 agent/node/admit/admit.go, asked by node/room
//	a probe's result restarts a container            agent/pod/plan/decide.go
//	a manifest's line number comes from              agent/source/locate.go
//
// # Glossary
//
//	sync              one run of the pipeline for one pod
//	step              an entry of the pipeline with a way up (Ensure) and a way down (Remove)
//	record            a pod's checkpoint
//	runtime-only pod  a pod found in the runtime without a checkpoint: the agent can stop it, and
//	                  waits for a source to claim it
//	attempt           one instance of a container; its number is the restart count it was made with
//	unmanaged pod     a pod in the runtime of another root directory: the agent leaves it alone
//	PLEG, pod cache   the kubelet's pod lifecycle event generator and cache: package observe
package agent
