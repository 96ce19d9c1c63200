// Package expand expands the volumes of claims on this node, and reports that in the claims'
// status.
//
// Purpose: if somebody asks for more in a claim, a cluster's controllers expand the storage. They
// leave the rest to the node that uses the volume. The node asks the volume's driver
// (NodeExpandVolume), while pods run or before they start. [Expander.Wanted] decides from memory
// whether this node has to expand a volume now. [Expander.Grow] does it. What a claim asks for is
// pure (decide.go), and so is what is written (patch.go). By the claim's status:
//
//	NodeResizePending or NodeResizeInProgress
//	    the driver expands to allocatedResources; NodeResizeInProgress is written before,
//	    the capacity without status and resize conditions afterwards
//	no status, nothing allocated (an old resizer)
//	    the driver expands to the volume's size; the same is written afterwards
//	no status, has the size, ReadWriteMany
//	    the driver expands to allocatedResources; nothing is written: another node has done so
//	any other
//	    nothing
//
// A failure is written as the condition NodeResizeError. A failure that lasts forever is written as
// NodeResizeInfeasible, and the controllers decide what to do.
//
// Truth owned: in memory, which size this process has given to a volume, and which size has failed.
// The API server owns the claims. The agent may be killed between the driver's answer and the
// update of the claim's status. Then it finds the claim in progress and asks the driver again: the
// interface demands that drivers accept this. While the agent lives, it does not ask twice.
//
// Concurrency: an [Expander] is safe for concurrent use. If pods share a volume, one of them at a
// time expands it. No error quotes a secret.
package expand
