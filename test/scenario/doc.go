// Package scenario plays whole pod lives on the whole agent, with a fake runtime, and crashes the agent everywhere.
//
// Purpose: testdata has one text script per pod life (txtar: the script, then its manifests and golden texts), played in virtual time inside a
// testing/synctest bubble. The crash suite plays a few lives again and again, and kills the agent at every single call that it makes
// to the runtime, once before the call takes effect and once after it did but was not answered.
//
// What is real: the agent as agent.New makes it, its files (root directory, checkpoints, volumes, logs' directories and links), manifests through
// the decoder. What is not: the runtime (cri/fake), cgroups (in memory), the manifest directory's watch (a scripted source), probes and hooks over
// the network (a bubble's time stands still while somebody waits for a socket, so that probes and hooks here are exec ones).
//
// # A machine's crash
//
// A killed agent writes nothing any more. Here its connection to the runtime freezes, its directories are renamed away, its cgroups freeze, and the connection is
// severed, so that whatever its goroutines still do while they are joined goes nowhere; then the directories are put back.
//
// # The scripts
//
// testdata itself has the pod lives that the agent was built along. Its folders have the order of a pod's life, a file for each case: what the Kubernetes
// documentation (Pod Lifecycle, Container Restarts, Init Containers, Sidecar Containers, Probes) and KEP-753, KEP-5307 and KEP-5532 say, whatever the
// code does. A file config.yaml of an archive is the agent's config.
//
// # The script's commands
//
//	manifest FILE [as NAME]         put a manifest of the archive into the manifest directory; the same NAME again is an edit. ALLCPUS in it becomes how
//	                                many processors the node has
//	remove NAME                     delete the manifest
//	source silent|speaks|none       a silent source reports nothing, as if its directory could not be read; with none, agents that start from now
//	                                on have no source at all
//	start-agent, stop-agent, kill-agent, restart-agent
//	advance D                       let time go by
//	drain [hold], undrain           empty the node, and let pods run again
//	shutdown                        the machine shuts down: the agent stops its pods and ends
//	exit CONTAINER CODE, oom CONTAINER
//	lose-sandbox POD, forget-sandbox POD, forget-container CONTAINER, reboot
//	runtime-down, runtime-up
//	image NAME present|absent|missing|broken|slow D
//	behave CONTAINER B...           what its incarnations do: run, exit:CODE[@D], oom[@D], term:CODE@D, term:ignore, starterr,
//	                                slowstart@D
//	exec WORD CODE [after D]        what a command that begins with WORD does in containers with a behave line
//	debug POD NAME [target=CONTAINER] [image=NAME] [refused]   add an ephemeral container; "refused" where the agent must say no
//	fault METHOD [after] [nth=N] [of=NAME] err=CLASS|hang|delay=D, clear-faults
//	                                of a container, or of a pod
//	reset-calls
//	expect ...                      see below; holds now
//	eventually D expect ...         holds within D
//	always D expect ...             holds at each tenth of a second of D
//
// POD is a manifest's name, without the node's name behind it. What can be expected:
//
//	drained STATE                   whether the node is: Open, Draining, Drained
//	phase POD PHASE                 none where the pod is not listed
//	reason POD REASON               the status's reason
//	ready POD true|false
//	condition POD TYPE STATUS
//	restarts POD CONTAINER N
//	waiting|terminated POD CONTAINER REASON, running POD CONTAINER
//	last POD CONTAINER REASON       the last termination's
//	starts CONTAINER N              how often a container was started since the start
//	calls METHOD N                  how often a method was called since reset-calls
//	order CALL < CALL...            calls that change something, in this order, as "Method container", "Method pod" or "ExecSync container WORD"
//	code|lastcode POD CONTAINER N   the exit code of the termination, of the last one
//	started|isready POD CONTAINER true|false
//	signal POD CONTAINER SIGNAL     the status's stop signal
//	why POD TYPE REASON             a condition's reason
//	message POD TEXT                the status's message
//	execs CONTAINER WORD N          how often a command was run in a container since reset-calls
//	grace CONTAINER N               the seconds that the last stop gave it
//	target CONTAINER NAME           whose processes a container was made to share; none where it has its own
//	field POD JSONPATH VALUE        a field of the pod; a JSONPath without spaces, such as {.spec.overhead.cpu}
//	nocondition POD TYPE            the pod has no such condition
//	limits POD SHARES/QUOTA/MIB     what the pod's cgroup is held to: weight, microseconds of cpu each 100 ms, memory
//	resized POD CHANGES             every limit that the pod's cgroup had, in order, joined by commas
//	event POD REASON [TEXT]         an event with TEXT in its message; noevent POD REASON
//	within D CALL < CALL...         the first of each of these calls began within D of each other
//	apart D CALL < CALL...          these calls, in this order, with more than D from the first to the last
//	file POD VOLUME PATH TEXT       a file in a volume of the kind ConfigMap or emptyDir
//	dump FILE                       the runtime's sandboxes and containers, as fake.Runtime.Dump tells them
//	clean                           nothing of any pod is left anywhere
//
// At the end of every scenario the runtime's invariants must hold, restart counts must never have fallen, and terminal phases never been left.
package scenario
