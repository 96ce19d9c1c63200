// Package status computes a pod's [v1.PodStatus] from facts, and keeps the last status of every
// pod.
//
// Purpose: [Derive] is a pure function from facts (the runtime's sandbox and containers, probe
// results, the steps' messages, the previous status) to the status that kubectl prints. The result
// is that of a kubelet 1.36: the same phases, conditions, reasons, container states and restart
// counts. [TerminationMessage] applies the limits of termination messages. [Store] keeps the last
// status of every pod. [Writer] brings these statuses to a cluster's API server, by patches of the
// node's own fields ([Diff]), and confirms that deleted pods may be removed there.
//
// Truth owned: the [Store] is the agent's only record of the last derived statuses. Everything in a
// status is computed from facts, and no other package stores a status. What the facts no longer
// show (a removed container, an IP of a stopped sandbox) comes from the previous status. Therefore
// [Input.Previous] must be the last status that was stored for that UID.
//
// These rules hold for all facts:
//
//   - a phase of Succeeded or Failed is final;
//   - restartCount of a container never falls;
//   - lastTransitionTime of a condition changes only with its status;
//   - startTime is set once.
//
// The Writer has more rules towards the API server. It writes no field or condition that has
// another owner (such as the scheduler's). It never changes a final phase. It names the pod's UID
// in every request. It confirms a deletion only after the Store says that nothing of the pod is
// left on the node.
//
// Concurrency: Derive and TerminationMessage are pure: no I/O, no clock, no logger, and they never
// modify their inputs. A Store is safe for concurrent use; its subscribers never block a writer.
package status
