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
// A killed agent writes nothing any more. Here its connection to the runtime is severed, its cgroups freeze, and its directories are renamed away at
// once, so that whatever its goroutines still do while they are joined goes nowhere; then the directories are put back.
//
// # The script's commands
//
//	manifest FILE [as NAME]         put a manifest of the archive into the manifest directory; the same NAME again is an edit
//	remove NAME                     delete the manifest
//	source silent|speaks            a silent source reports nothing, as if its directory could not be read
//	start-agent, stop-agent, kill-agent, restart-agent
//	advance D                       let time go by
//	exit CONTAINER CODE, oom CONTAINER
//	lose-sandbox POD, forget-sandbox POD, reboot
//	runtime-down, runtime-up
//	image NAME present|absent|missing|broken|slow D
//	behave CONTAINER B...           what its incarnations do: run, exit:CODE[@D], oom[@D], term:CODE@D, term:ignore, starterr
//	exec WORD CODE [after D]        what a command that begins with WORD does in containers with a behave line
//	fault METHOD [after] [nth=N] err=CLASS|hang|delay=D, clear-faults
//	reset-calls
//	expect ...                      see below; holds now
//	eventually D expect ...         holds within D
//	always D expect ...             holds at each tenth of a second of D
//
// POD is a manifest's name, without the node's name behind it. What can be expected:
//
//	phase POD PHASE                 none where the pod is not listed
//	reason POD REASON               the status's reason
//	ready POD true|false
//	condition POD TYPE STATUS
//	restarts POD CONTAINER N
//	waiting|terminated POD CONTAINER REASON, running POD CONTAINER
//	last POD CONTAINER REASON       the last termination's
//	starts CONTAINER N              how often a container was started since the start
//	calls METHOD N                  how often a method was called since reset-calls
//	order CALL < CALL...            calls that change something, in this order, as "Method container" or "Method pod"
//	event POD REASON
//	file POD VOLUME PATH TEXT       a file in a volume of the kind ConfigMap or emptyDir
//	dump FILE                       the runtime's sandboxes and containers, as fake.Runtime.Dump tells them
//	clean                           nothing of any pod is left anywhere
//
// At the end of every scenario the runtime's invariants must hold, restart counts must never have fallen, and terminal phases never been left.
package scenario
