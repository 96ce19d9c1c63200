// Package status turns what is known about a pod into its [v1.PodStatus], and keeps the last one of every pod.
//
// Purpose: [Derive] is a pure function from facts (the runtime's sandbox and containers, probe results, what the steps said, the status
// derived before) to the status that kubectl prints. It has the same effect as a kubelet 1.36: the same phases, conditions, reasons, container states
// and restart counts. [TerminationMessage] applies the limits of termination messages. [Store] keeps the last status of every pod. [Writer] makes a
// cluster's API server say the same, by patches of the node's own fields ([Diff]), and confirms that deleted pods may go.
//
// Truth owned: the [Store] is the agent's only record of the last derived statuses. Everything in a status is computed from facts; nothing
// else stores one. What the facts no longer tell (a removed container, an IP of a stopped sandbox) is taken from the previous status, which is why
// [Input.Previous] must be the last status that was stored for that UID.
//
// Rules that hold whatever the facts say:
//
//   - a phase of Succeeded or Failed is final;
//   - restartCount of a container never falls;
//   - lastTransitionTime of a condition changes only with its status;
//   - startTime is set once.
//
// The Writer adds, towards the API server: it writes nothing that is somebody else's (foreign conditions, the scheduler's fields), never takes back a final phase,
// names the pod's UID in every request, and confirms a deletion only once the Store says that nothing of the pod is left here.
//
// Concurrency: Derive and TerminationMessage are pure: no I/O, no clock, no logger, inputs are never modified. A Store is safe for
// concurrent use; its subscribers never block a writer.
package status
