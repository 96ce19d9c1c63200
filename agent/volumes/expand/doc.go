// Package expand has volumes of claims that have grown take their new size on this node, and says so in the claims' status.
//
// Purpose: when somebody asks for more in a claim, a cluster's controllers have the storage grow and leave the rest to the node that uses it: the volume's driver
// is told (NodeExpandVolume), while pods run or before they start. [Expander.Wanted] says from memory whether that is asked of this node now, [Expander.Grow]
// does it. What is asked, and of whom, is pure (decide.go), and so is what is written (patch.go):
//
//	claim's status                        the driver is told   written before       written after
//	NodeResizePending, …InProgress        allocatedResources   NodeResizeInProgress capacity; no status, no resize conditions
//	none, nothing allocated (an old resizer) the volume's size nothing              the same
//	none, has the size, ReadWriteMany     allocatedResources   nothing              nothing: another node has done so
//	any other                             nothing
//
// A failure is written as the condition NodeResizeError; one that can never succeed as NodeResizeInfeasible, and the controllers decide what is to be done.
//
// Truth owned: in memory, which size a volume was given by this process and which failed; the API server owns the claims. An agent that is killed between the driver's
// answer and the claim's status finds the claim in progress, and asks the driver again, which it has to bear. While it lives it does not ask twice.
//
// Concurrency: an [Expander] is safe for concurrent use; of pods that share a volume, one at a time has it grow. No error quotes a secret.
package expand
