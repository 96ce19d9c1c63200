// Package joint makes one runtime of two, while a node moves from one to the other.
//
// Purpose: [Runtime] is a [cri.Runtime] that is chosen late, when it is first asked for and for as
// long as nobody answers. New sandboxes are made by the first runtime. What the former runtime has
// made stays there: it is listed, watched, restarted and stopped through the former runtime until
// nothing is left in it.
//
//	RunPodSandbox, images, status  ─▶ first
//	lists, events                  ─▶ first and former, joined
//	calls with an ID               ─▶ the one that made the sandbox or container
//	images of a pod                ─▶ the one that has the pod's sandbox
//
// Truth owned: which of the two has a sandbox or a container. It is read from the former's lists
// when the runtimes are chosen, and kept up by the calls from then on.
//
// Concurrency: a [Runtime] is safe for concurrent use. [Runtime.Close] joins its goroutines and
// closes the members.
package joint
