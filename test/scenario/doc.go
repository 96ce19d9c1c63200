// Package scenario plays whole pod lives on the whole agent, with a fake runtime, and crashes the
// agent at every point.
//
// Purpose: testdata has one text script for each pod life (txtar: the script, then its manifests
// and golden texts). A script is played in virtual time inside a testing/synctest bubble. The crash
// suite plays a few lives again and again. It kills the agent at every single call to the runtime,
// once before the call takes effect, and once after it took effect but was not answered.
//
// What is real: the agent that agent.New makes, its files (root directory, checkpoints, volumes,
// logs' directories and links), and the decoder of manifests. What is not real: the runtime
// (cri/fake), the cgroups (in memory), the watch of the manifest directory (a scripted source), and
// probes and hooks over the network. A bubble's time stands still while a goroutine waits for a
// socket, so all probes and hooks here are exec ones.
//
// # A machine's crash
//
// A killed agent writes nothing any more. To get this, the agent's connection to the runtime
// freezes, its directories are renamed, its cgroups freeze, and the connection is severed. So
// nothing that the agent's goroutines still do has an effect. After they have ended, the
// directories are put back.
//
// # The scripts
//
// testdata itself has the pod lives that the agent was built along. Its folders follow the order of
// a pod's life, with a file for each case. The cases are what the Kubernetes documentation (Pod
// Lifecycle, Container Restarts, Init Containers, Sidecar Containers, Probes) and KEP-753, KEP-5307
// and KEP-5532 say, and not what the code does. The file config.yaml of an archive is the agent's
// config.
//
// # The script's commands
//
//	manifest FILE [as NAME]         put a manifest of the archive into the manifest directory; the
//	                                same NAME again is an edit. ALLCPUS in it is replaced by the
//	                                number of processors of the node
//	remove NAME                     delete the manifest
//	source silent|speaks|none       a silent source reports nothing, as if its directory could not
//	                                be read; with none, agents that start later have no source
//	start-agent, stop-agent, kill-agent, restart-agent
//	advance D                       let time go by
//	drain [hold], undrain           empty the node, and let pods run again
//	restart POD [CONTAINER...] [force] [refused]
//	                                restart containers, all without a name; without a grace with
//	                                "force"; the agent must say no with "refused"
//	stop POD [force] [refused]      stop a pod until it is started
//	start POD                       start a pod that was stopped
//	shutdown                        the machine shuts down: the agent stops its pods and ends
//	exit CONTAINER CODE, oom CONTAINER
//	lose-sandbox POD, forget-sandbox POD, forget-container CONTAINER, reboot
//	runtime-down, runtime-up
//	image NAME present|absent|missing|broken|slow D
//	behave CONTAINER B...           what its attempts do: run, exit:CODE[@D], oom[@D], term:CODE@D,
//	                                term:ignore, starterr, slowstart@D
//	exec WORD CODE [after D]        what a command that begins with WORD does in containers with a
//	                                behave line
//	debug POD NAME [target=CONTAINER] [image=NAME] [refused]
//	                                add an ephemeral container; "refused" if the agent must refuse
//	fault METHOD [after] [nth=N] [of=NAME] err=CLASS|hang|delay=D, clear-faults
//	                                of a container, or of a pod
//	reset-calls
//	expect ...                      see below; holds now
//	eventually D expect ...         holds within D
//	always D expect ...             holds at each tenth of a second of D
//
// POD is a manifest's name, without the node's name at its end. These things can be expected:
//
//	drained STATE                   the node's state: Open, Draining, Drained
//	phase POD PHASE                 none if the pod is not listed
//	reason POD REASON               the status's reason
//	ready POD true|false
//	condition POD TYPE STATUS
//	restarts POD CONTAINER N
//	waiting|terminated POD CONTAINER REASON, running POD CONTAINER
//	last POD CONTAINER REASON       the last termination's
//	starts CONTAINER N              how often a container was started since the start
//	calls METHOD N                  how often a method was called since reset-calls
//	order CALL < CALL...            calls that change something, in this order, as "Method
//	                                container", "Method pod" or "ExecSync container WORD"
//	code|lastcode POD CONTAINER N   the exit code of the termination, of the last one
//	started|isready POD CONTAINER true|false
//	signal POD CONTAINER SIGNAL     the status's stop signal
//	why POD TYPE REASON             a condition's reason
//	message POD TEXT                the status's message
//	execs CONTAINER WORD N          how often a command was run in a container since reset-calls
//	grace CONTAINER N               the grace of the last stop, in seconds
//	target CONTAINER NAME           the container whose processes it shares; none if it has its own
//	field POD JSONPATH VALUE        a field of the pod; a JSONPath without spaces, such as
//	                                {.spec.overhead.cpu}
//	nocondition POD TYPE            the pod has no such condition
//	limits POD SHARES/QUOTA/MIB     the limits of the pod's cgroup: weight, microseconds of cpu in
//	                                each 100 ms, memory
//	resized POD CHANGES             every limit that the pod's cgroup had, in order, joined by
//	                                commas
//	event POD REASON [TEXT]         an event with TEXT in its message; noevent POD REASON
//	within D CALL < CALL...         the first of each of these calls began within D of each other
//	apart D CALL < CALL...          these calls, in this order, with more than D from the first to
//	                                the last
//	file POD VOLUME PATH TEXT       a file in a volume of the kind ConfigMap or emptyDir
//	dump FILE                       the runtime's sandboxes and containers, as fake.Runtime.Dump
//	                                returns them
//	clean                           nothing of any pod is left anywhere
//
// At the end of every scenario the runtime's invariants must hold. Restart counts may never have
// fallen, and no pod may have left a terminal phase.
package scenario
